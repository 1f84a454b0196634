"""Callers, engines and services on the card: what they do, and what the core hears of it."""

from collections.abc import Callable
from dataclasses import dataclass

from services.scheduler.core.values import (
    Effect,
    Grant,
    InstanceFacts,
    ModelFacts,
    Request,
    State,
    Tier,
)
from tests.deep.card import Engine
from tests.deep.residency_rules import SIZES, Errand, Rules


@dataclass
class Life(Rules):
    """Everything that happens by itself."""

    # -- one event ---------------------------------------------------------------------------

    def _tell(self, text: str, call: Callable[[], list[Effect]]) -> None:
        self.transcript.event(self.now, text)
        effects = call()
        self.transcript.effects(effects)
        for effect in effects:
            self._hear(effect)
        self.check()

    def _errand(
        self, what: str, run: Callable[[], None], ruin: Callable[[], None] | None = None
    ) -> None:
        self.errands.append(Errand(what, run, ruin))

    def run(self, errand: Errand, *, ruined: bool = False) -> None:
        """Run one errand, or have it go wrong."""
        self.errands.remove(errand)
        if ruined and errand.ruin is not None:
            self.transcript.event(self.now, f"({errand.what} goes wrong)")
            errand.ruin()
        else:
            errand.run()
        self.check()

    def _hear(self, effect: Effect) -> None:
        raise NotImplementedError

    # -- callers -----------------------------------------------------------------------------

    def arrive(self, tier: Tier, model: str, **more: object) -> None:
        self.count += 1
        request = Request(f"r{self.count}", model, tier, self.now, **more)  # type: ignore[arg-type]
        self.waiting[request.permit_id] = request
        shown = " ".join(f"{k}={v}" for k, v in more.items())
        self._tell(
            f"arrives {request.permit_id} {tier.name} wants {model} {shown}",
            lambda: self.core.arrive(self.now, request),
        )

    def leave(self, name: str) -> None:
        """The caller goes, from the queue or from its run."""
        if self.waiting.pop(name, None) is not None:
            self.ended[name] = "left"
        self.running.pop(name, None)
        self._tell(f"{name} leaves", lambda: self.core.leave(self.now, name))

    def start(self, name: str) -> None:
        """The caller comes to the engine with its permit."""
        grant = self.running[name]
        engine = self._engine_of(grant)
        lease = grant.lease_id
        if engine is None or (lease and not self.card.lives(self.now, lease)):
            self.leave(name)  # nobody there, or its memory was waited for too long
            return
        if grant.lease_id:
            engine.peaks[name] = (grant.lease_id, grant.lease_mib)
        self.started[name] = self.now
        self._tell(
            f"{name} starts on {engine.instance}",
            lambda: self.core.permit_started(self.now, name, grant.model, grant.instance_id),
        )

    def finish(self, name: str, *, leaves: bool = True) -> None:
        """Its engine is through with it."""
        self._off_engine(name)
        self._tell(f"{name} is over", lambda: self.core.permit_over(self.now, name))
        if leaves and name in self.running:
            self.leave(name)

    def _off_engine(self, name: str) -> None:
        self.started.pop(name, None)
        for engine in self.card.engines:
            if peak := engine.peaks.pop(name, None):
                self.card.spent.add(peak[0])

    def answer_engine(self, name: str, *, only: bool) -> None:
        if only and name in self.started:
            self._tell(f"{name} runs", lambda: self.core.permit_runs(name))
        else:
            self.finish(name, leaves=False)

    def _engine_of(self, grant: Grant) -> Engine | None:
        engine = self.card.engine(grant.model)
        return engine if engine is not None and engine.instance == grant.instance_id else None

    # -- reports -----------------------------------------------------------------------------

    def _report(self, key: str, failure: str = "") -> None:
        """The service of a model tells the core what is."""
        engine, (resident, peak) = self.card.engine(key), SIZES[key]
        state = State.COLD
        instances: tuple[InstanceFacts, ...] = ()
        if engine is not None:
            state = State.READY if engine.ready else State.LOADING
            draining = self.leaving.get(key)
            if draining is not None and draining.begun:
                state = State.DRAINING
            place = self.setup.places
            instances = (InstanceFacts(engine.instance, state, f"unix:{key}", places=place),)
        elif failure:
            state = State.FAILED
        retry = self.now + 2_000 if failure else 0
        facts = ModelFacts(
            key,
            "image" if key == "c" else "chat",
            state,
            resident,
            peak,
            instances=instances,
            retry_at_ms=retry,
            failure=failure,
        )
        before = self.told.get(key)
        if key in self.lost:
            return
        self.told[key] = facts
        if state is State.READY and (before is None or before.state is not State.READY):
            self.used_ms.setdefault(key, 0)
        self._tell(f"{key} is {state.name}", lambda: self.core.model_changed(self.now, facts))

    def lose(self, key: str) -> None:
        self.lost.add(key)
        self._tell(f"the service of {key} is lost", lambda: self.core.worker_lost(self.now, [key]))

    def find(self, key: str) -> None:
        """The service is back and reports everything."""
        self.lost.discard(key)
        self.transcript.event(self.now, f"the service of {key} is back")
        self._report(key)
        running = {
            name: (grant.model, grant.instance_id)
            for name, grant in self.running.items()
            if name in self.started and grant.model == key
        }
        orphans = {n: p for n, p in self.core.permits.items() if n in self.started}
        running |= {n: (p.model, p.instance_id) for n, p in orphans.items() if p.model == key}
        self._tell(
            f"it reports {key} whole, runs {sorted(running)}",
            lambda: self.core.snapshot(self.now, [self.told[key]], running, {key}),
        )

    # -- engines -----------------------------------------------------------------------------

    def load_on(self, engine: Engine, *, fails: bool = False) -> None:
        """An engine that loads takes up a third of its memory, is ready, or breaks."""
        key = engine.model
        if fails:
            self._gone(engine, failure="broke")
        elif engine.held_mib < engine.wants_mib:
            self.card.grow(engine, engine.wants_mib // 3 + 1)
            self.transcript.event(self.now, f"({key} holds {engine.held_mib})")
            self.check()
        else:
            engine.ready = True
            self.card.renew(self.now)
            self._report(key)
            self._tell(f"{key} is loaded", lambda: self.core.load_ended(self.now, key, None))

    def crash(self, engine: Engine) -> None:
        """Its process dies under whatever it does."""
        self._gone(engine, failure="" if engine.ready else "crashed")

    def _gone(self, engine: Engine, failure: str = "") -> None:
        """The engine is no more: what ran on it is over, its memory fades, its lease goes back."""
        key, loading = engine.model, not engine.ready
        left = self.leaving.pop(key, None)
        self.by_hand.discard(key)
        for name in [n for n in self.started if n in engine.peaks or self._runs_on(n, engine)]:
            self.finish(name, leaves=False)
        self.card.end(engine)
        self.vacated_ms = self.now
        self.card.release(self.now, engine.lease)
        self._report(key, failure=failure if loading else "")
        if loading:
            said = failure or None
            self._tell(
                f"the load of {key} is over: {said}",
                lambda: self.core.load_ended(self.now, key, said),
            )
        if left is not None:
            self._tell(f"{key} is unloaded", lambda: self.core.unload_ended(self.now, key))

    def _runs_on(self, name: str, engine: Engine) -> bool:
        permit = self.core.permits.get(name)
        return permit is not None and permit.model == engine.model
