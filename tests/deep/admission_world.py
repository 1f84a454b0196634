"""The world around the admission core: model services, engines, a broker and callers, all unruly.

Each method is one thing that happens. It tells the core and the judge (`admission_stage`). Which
things happen when is the machine's affair (`test_admission_machine`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.scheduler.core.values import (
    InstanceFacts,
    ModelFacts,
    Request,
    State,
)
from tests.deep.admission_stage import MODELS, Stage


@dataclass
class AdmissionWorld(Stage):
    """One history."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.facts = {key: self._facts(key, State.COLD) for key in MODELS}

    # -- callers -----------------------------------------------------------------------------

    def arrive(self, request: Request) -> None:
        self.requests[request.permit_id] = request
        self.tell(
            f"arrives {_shown(request)}",
            lambda: self.core.arrive(self.now, request),
            lambda: self.judge.arrive(request),
        )

    def leave(self, name: str) -> None:
        self.requests.pop(name, None)
        if run := self.runs.get(name):
            run.open = False
        self.tell(
            f"{name} leaves",
            lambda: self.core.leave(self.now, name),
            lambda: self.judge.leave(name),
        )

    # -- engines -----------------------------------------------------------------------------

    def start(self, name: str) -> None:
        run = self.runs[name]
        run.started = True
        self.tell(
            f"{name} starts on {run.instance}",
            lambda: self.core.permit_started(self.now, name, run.model, run.instance),
            lambda: self.judge.started(name, run.model, run.instance, self._counted(name)),
        )

    def end(self, name: str) -> None:
        self.runs[name].over = True
        self.tell(
            f"the engine says {name} is over",
            lambda: self.core.permit_over(self.now, name),
            lambda: self.judge.over(name),
        )

    def end_unheard(self, name: str) -> None:
        """Its end will be known from the next full report only."""
        self.runs[name].over = True
        self.transcript.event(self.now, f"{name} ends, unheard")

    def answer_engine(self, index: int) -> None:
        name, only = self.engine_asks.pop(index % len(self.engine_asks))
        run = self.runs[name]
        if only and run.started and not run.over:
            self.tell(
                f"asked, the engine says {name} runs",
                lambda: self.core.permit_runs(name),
                lambda: self.judge.runs_on(name),
            )
        else:
            self.end(name)

    def _counted(self, name: str) -> int | None:
        permit = self.core.permits.get(name)
        return None if permit is None else permit.cost

    # -- model services ----------------------------------------------------------------------

    def report(self, key: str, kind: str) -> None:
        """A model changes: loads, is ready on one or two instances, fails, drains, goes."""
        old = self.facts[key].instances
        match kind:
            case "ready":
                facts = self._facts(key, State.READY, old[:1] or (self._instance(),))
            case "twice":
                facts = self._facts(key, State.READY, (*old, self._instance())[-2:])
            case "half":
                failed = tuple(replace(i, state=State.FAILED) for i in old[:1])
                facts = self._facts(key, State.READY, failed + (old[1:] or (self._instance(),)))
            case "loading":
                loading = (self._instance(State.LOADING),)
                facts = self._facts(key, State.LOADING, loading)
            case "draining":
                facts = self._facts(key, State.DRAINING, old)
            case "failed":
                facts = replace(
                    self._facts(key, State.FAILED), retry_at_ms=self.now + 3_000, failure="broke"
                )
            case _:
                facts = self._facts(key, State.COLD)
        self._bury(key, facts)
        self.facts[key] = facts
        if key in self.lost:
            return
        if facts.state in (State.COLD, State.FAILED):
            self.leaving.discard(key)
        self.tell(
            f"{key} is {facts.state.name} {[i.instance_id for i in facts.instances]}",
            lambda: self.core.model_changed(self.now, facts),
            lambda: self.judge.model(facts),
        )

    def _bury(self, key: str, facts: ModelFacts) -> None:
        """What ran on instances that are gone is over, and that is told first."""
        alive = {i.instance_id for i in facts.instances if i.state is not State.FAILED}
        for name, run in list(self.runs.items()):
            if run.model == key and run.instance not in alive and not run.over:
                (self.end_unheard if key in self.lost else self.end)(name)

    def lose(self, key: str) -> None:
        self.lost.add(key)
        self.tell(
            f"the service of {key} is lost",
            lambda: self.core.worker_lost(self.now, [key]),
            lambda: self.judge.lost([key]),
        )

    def snapshot(self, key: str, *, known: bool = True) -> None:
        """The service of one model reports everything."""
        self.lost.discard(key)
        facts = [self.facts[key]]
        running = {
            name: (run.model, run.instance)
            for name, run in self.runs.items()
            if run.model == key and run.started and not run.over
        }
        before = {key} if known else set[str]()
        self.tell(
            f"the service of {key} reports: {facts[0].state.name}, runs {sorted(running)}",
            lambda: self.core.snapshot(self.now, facts, running, before),
            lambda: self.judge.snapshot(facts, running, before, self._costs(running)),
        )

    def _costs(self, names: Mapping[str, object]) -> dict[str, int]:
        return {n: p.cost for n, p in self.core.permits.items() if n in names}

    def remove(self, key: str) -> None:
        """Not configured for a moment."""
        self.leaving.discard(key)
        self.tell(
            f"{key} is not configured any more",
            lambda: self.core.model_removed(self.now, key),
            lambda: self.judge.removed(key),
        )

    def _facts(
        self, key: str, state: State, instances: tuple[InstanceFacts, ...] = ()
    ) -> ModelFacts:
        peak = 500 if self.setup.peaks and key in ("m1", "m4") else 0
        return ModelFacts(
            key,
            MODELS[key],
            state,
            resident_mib=1_000,
            peak_mib=peak,
            max_instances=max(1, len(instances)),
            instances=instances,
        )

    def _instance(self, state: State = State.READY) -> InstanceFacts:
        name = self.fresh("i")
        return InstanceFacts(name, state, f"unix:{name}", places=self.setup.places)

    # -- the broker --------------------------------------------------------------------------

    def answer_lease(self, index: int, answer: str) -> None:
        key = self.lease_asks.pop(index % len(self.lease_asks))
        core, judge = self.core, self.judge
        if answer == "granted":
            lease = self.fresh("lease")
            self.tell(
                f"{key} gets {lease}",
                lambda: core.lease_granted(self.now, key, lease),
                lambda: judge.lease_granted(key, lease),
            )
        elif answer == "unanswered":
            self.tell(
                f"the broker does not answer for {key}",
                lambda: core.lease_unanswered(self.now, key),
                lambda: judge.lease_over(key, never=False),
            )
        else:
            never = answer == "never"
            self.tell(
                f"{key} is denied a lease ({answer})",
                lambda: core.lease_denied(self.now, key, never=never, detail="", headroom_mib=10),
                lambda: judge.lease_over(key, never=never),
            )

    def answer_transient(self, index: int, answer: str) -> None:
        name, mib = self.transient_asks.pop(index % len(self.transient_asks))
        core, judge = self.core, self.judge
        if answer == "granted":
            lease = self.fresh("peak")
            self.tell(
                f"{name} gets {lease}",
                lambda: core.transient_granted(self.now, name, lease, mib),
                lambda: judge.transient_granted(name, lease),
            )
        elif answer == "unanswered":
            self.tell(
                f"the broker does not answer for {name}",
                lambda: core.transient_unanswered(self.now, name),
                lambda: judge.transient_over(name, never=False),
            )
        else:
            never = answer == "never"
            self.tell(
                f"{name} is denied its peak ({answer})",
                lambda: core.transient_denied(
                    self.now, name, never=never, detail="", headroom_mib=10
                ),
                lambda: judge.transient_over(name, never=never),
            )

    def end_load(self, index: int, failure: str | None) -> None:
        key = self.loads.pop(index % len(self.loads))
        self.tell(
            f"the load of {key} ends: {failure or 'well'}",
            lambda: self.core.load_ended(self.now, key, failure),
            lambda: self.judge.load_ended(key, failure),
        )

    # -- people ------------------------------------------------------------------------------

    def unload(self, key: str, *, force: bool) -> None:
        self.transcript.event(self.now, f"somebody wants {key} gone{' by force' * force}")
        self.judge.begin(self.now)
        blocking = self.core.unload_asked(key, force=force)
        self.transcript.lines.append(f"{'':>8}    -> {blocking} in the way")
        self.judge.unload_asked(key, blocking, force=force)
        if not blocking:
            self.leaving.add(key)
        self._compare()
        # What follows from it is decided with the next event.
        self.tell("tick", lambda: self.core.tick(self.now), self.judge.tick)

    def end_unload(self, key: str) -> None:
        self.leaving.discard(key)
        self.tell(
            f"the unload of {key} is over",
            lambda: self.core.unload_ended(self.now, key),
            lambda: self.judge.unload_ended(key),
        )

    def hold(self, lane: str, holder: str) -> None:
        self.tell(
            f"{holder} holds {lane}",
            lambda: self.core.hold(self.now, lane, holder, 8_000),
            lambda: self.judge.hold(lane, holder, 8_000),
        )

    def release_hold(self, lane: str, holder: str) -> None:
        self.tell(
            f"{holder} lets {lane} go",
            lambda: self.core.release_hold(self.now, lane, holder),
            lambda: self.judge.release_hold(lane, holder),
        )

    # -- time --------------------------------------------------------------------------------

    def ready(self) -> None:
        """Every service has reported: granting begins."""
        self.tell(
            "every service has reported",
            lambda: self.core.catalogue_complete(self.now),
            lambda: self.judge.reconcile(catalogued=True),
        )

    def reconcile(self) -> None:
        """Some service has not reported in time; granting begins all the same."""
        self.tell(
            "the engines had their time to report",
            lambda: self.core.reconcile(self.now),
            lambda: self.judge.reconcile(catalogued=False),
        )

    def wait(self, wait_ms: int) -> None:
        """Time passes; every alarm on the way rings in time."""
        until, rung = self.now + wait_ms, 0
        while (due := self.core.next_alarm_ms) is not None and due <= until:
            self.now = max(self.now, due)
            self.tell("tick", lambda: self.core.tick(self.now), self.judge.tick)
            rung += 1
            if rung > 2_000:
                raise self.transcript.broken("the alarm rings without end")
        self.now = until
        self.transcript.event(self.now, "time has passed")

    def restart(self) -> None:
        """The scheduler is killed; a new one knows nothing."""
        self.transcript.event(self.now, "== the scheduler is new ==")
        self._new_core()
        for run in self.runs.values():
            run.open = False
        self.lease_asks, self.transient_asks, self.engine_asks = [], [], []
        self.loads, self.leaving, self.lost = [], set(), set()
        self.runs = {n: r for n, r in self.runs.items() if r.started and not r.over}

    # -- the end -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Everybody leaves; nothing remains."""
        self.transcript.event(self.now, "== everybody leaves ==")
        while self.transient_asks:
            self.answer_transient(0, "granted")
        for name in list(self.requests):
            self.leave(name)
        for key in MODELS:
            if key in self.lost:
                self.snapshot(key)
        for name in list(self.core.permits):
            if not self.runs[name].over or self.core.permits[name].seen:
                self.end(name)
            if name in self.core.permits:
                self.leave(name)
        while self.engine_asks:
            self.answer_engine(0)
        while self.lease_asks:
            self.answer_lease(0, "denied")
        self.wait(31_000)
        self.wait(400_000)
        core, broken = self.core, self.transcript.broken
        if core.in_use or core.permits or core.queue_positions() or self.judge.holds:
            raise broken("not everything is back")
        if core.next_alarm_ms is not None:
            raise broken(f"nothing is left, and an alarm is set for {core.next_alarm_ms}")


def _shown(request: Request) -> str:
    words = [request.permit_id, request.tier.name, "wants", request.model]
    words += [f"lane={request.lane}"] if request.lane else []
    words += [f"key={request.key}"] if request.key else []
    words += [f"under {request.parent}"] if request.parent else []
    words += [f"peak={request.preferred_mib}"] if request.preferred_mib else []
    words += ["try"] * request.try_acquire + ["load"] * request.load_only
    return " ".join([*words, f"since {request.arrived_ms}"])
