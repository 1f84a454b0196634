"""A transcript interpreter for the scheduler's core: commands in, decisions out, virtual time.

A transcript is a text file of blocks:

    # a comment
    paid a1 wants m1
    ----
    queued a1 at 0
    ask lease for m1 (100 MiB, PAID)

Above the dashes commands, below them exactly what the core decided. `COHABIT_REWRITE=1 pytest`
writes what it decided now; read the difference before you commit it.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.settings import Fairness, ModelRule, Settings
from services.scheduler.core.sets import parse_sets
from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    AskTransient,
    CancelLoad,
    Effect,
    Grant,
    HoldChanged,
    InstanceFacts,
    Lane,
    Loading,
    ModelFacts,
    Queued,
    Refuse,
    Request,
    ReturnLease,
    StartLoad,
    StartUnload,
    State,
    Tier,
)

_DEFAULT_COSTS = {"chat": 1, "image": 3, "all": 4}


def lane_of(name: str) -> Lane:
    """Lanes by name: chat costs 1, image 3, all everything, batch 1 and always in the background;
    waits 60 s, runs 600 s."""
    cost = _DEFAULT_COSTS.get(name, 1)
    return Lane(name, cost, wait_ms=60_000, max_run_ms=600_000, background=name == "batch")


@dataclass
class World:
    """A core with 4 permits, and the clock of the transcript."""

    settings: Settings = field(default_factory=lambda: Settings(4, lane_of, queue_limit=8))
    now: int = 0
    core: SchedulerCore = field(init=False)

    def __post_init__(self) -> None:
        self.core = SchedulerCore(self.settings)

    def run(self, line: str) -> list[str]:
        """Perform one command; what the core decided, a line each."""
        words = shlex.split(line)
        handler = getattr(self, f"do_{words[0]}", None)
        if handler is None:
            return [describe(e) for e in self._request(words)]
        return [describe(effect) for effect in handler(*words[1:])]

    def do_given(self, *options: str) -> list[Effect]:
        """given NAME=VALUE…: settings, before anything else.

        weight.KEY=2 soft=1 pending=3 pending.model=3 limit.TIER=2 promote.TIER=1000 swap=15000
        linger=500 drain=60000 quiet=60000 ttl.MODEL=1000 cost.MODEL=2 pinned.MODEL=1 set.NAME=EXPR
        """
        given = dict(option.split("=", 1) for option in options)
        self.settings = _settings(given)
        self.__post_init__()
        return []

    def do_start(self) -> list[Effect]:
        """start: every model service has reported, granting begins."""
        return self.core.catalogue_complete(self.now)

    def do_silence(self) -> list[Effect]:
        """silence: some model service has not reported in time, granting begins all the same."""
        return self.core.reconcile(self.now)

    def do_model(self, key: str, state: str, *options: str) -> list[Effect]:
        """model KEY STATE [lane=chat] [mib=100] [peak=0] [places=4] [retry=MS] [progress=0.5]
        [family=F] [context=N] [most=2] [ready=1,2]: `ready` are the instances of several that serve.
        """
        given = dict(option.split("=") for option in options)
        known = self.core.models.get(key)
        return self.core.model_changed(
            self.now, _facts(key, State[state], given, known.facts if known else None, self.now)
        )

    def do_gone(self, name: str) -> list[Effect]:
        """gone NAME: the caller closed its stream."""
        return self.core.leave(self.now, name)

    def do_started(self, name: str, model: str) -> list[Effect]:
        """started NAME MODEL: an engine took the request in."""
        return self.core.permit_started(self.now, name, model, f"{model}-1")

    def do_over(self, name: str) -> list[Effect]:
        """over NAME: the engine says nothing runs under it."""
        return self.core.permit_over(self.now, name)

    def do_runs(self, name: str) -> list[Effect]:
        """runs NAME: the engine was asked, and it is in use."""
        return self.core.permit_runs(name)

    def do_done(self, name: str) -> list[Effect]:
        """done NAME: the usual end: the engine reports it over, then the caller closes."""
        permit = self.core.permits[name]
        first = self.core.permit_started(self.now, name, permit.model, permit.instance_id)
        second = self.core.permit_over(self.now, name)
        return [*first, *second, *self.core.leave(self.now, name)]

    def do_lease(self, key: str, answer: str, room: str = "room=0") -> list[Effect]:
        """lease KEY granted|denied|never|unanswered [room=MIB]"""
        if answer == "unanswered":
            return self.core.lease_unanswered(self.now, key)
        if answer == "granted":
            return self.core.lease_granted(self.now, key, f"lease-{key}")
        headroom = int(room.removeprefix("room="))
        return self.core.lease_denied(self.now, key, answer == "never", "too big", headroom)

    def do_peak(self, name: str, answer: str, room: str = "room=0") -> list[Effect]:
        """peak NAME granted|denied|never|unanswered [room=MIB]: the memory of one request."""
        if answer == "unanswered":
            return self.core.transient_unanswered(self.now, name)
        if answer == "granted":
            return self.core.transient_granted(self.now, name, f"peak-{name}", 10)
        headroom = int(room.removeprefix("room="))
        return self.core.transient_denied(self.now, name, answer == "never", "too big", headroom)

    def do_hold(self, lane: str, holder: str, duration: str) -> list[Effect]:
        """hold LANE HOLDER 1000ms"""
        return self.core.hold(self.now, lane, holder, int(duration.removesuffix("ms")))

    def do_release(self, lane: str, holder: str) -> list[Effect]:
        """release LANE HOLDER: the hold ends."""
        return self.core.release_hold(self.now, lane, holder)

    def do_loaded(self, key: str) -> list[Effect]:
        """loaded KEY: the load call returned."""
        return self.core.load_ended(self.now, key, None)

    def do_gave_up(self, key: str) -> list[Effect]:
        """gave_up KEY: the load call ended with a failure."""
        return self.core.load_ended(self.now, key, "it broke", 2_000)

    def do_unloaded(self, key: str) -> list[Effect]:
        """unloaded KEY: the unload call returned."""
        return self.core.unload_ended(self.now, key)

    def do_unload(self, key: str) -> list[Effect]:
        """unload KEY: somebody wants it gone."""
        self.core.unload_asked(key, force=False)
        return []

    def do_lost(self, *keys: str) -> list[Effect]:
        """lost KEYS: their service does not answer."""
        return self.core.worker_lost(self.now, keys)

    def do_snapshot(self, *pairs: str) -> list[Effect]:
        """snapshot KEY:STATE... [permit@KEY...]: a service reports everything."""
        models = dict(p.split(":") for p in pairs if ":" in p)
        found = dict(p.split("@") for p in pairs if "@" in p)
        running = {name: (key, f"{key}-1") for name, key in found.items()}
        facts = [_facts(key, State[state], {}, None, self.now) for key, state in models.items()]
        return self.core.snapshot(self.now, facts, running, set(self.core.models))

    def do_wait(self, duration: str) -> list[Effect]:
        """wait 1500ms: time passes; every alarm on the way rings at its time."""
        until = self.now + int(duration.removesuffix("ms"))
        effects: list[Effect] = []
        while (due := self.core.next_alarm_ms) is not None and due <= until:
            self.now = max(self.now, due)
            effects += self.core.tick(self.now)
        self.now = until
        return effects

    def _request(self, words: list[str]) -> list[Effect]:
        """TIER NAME wants MODEL [lane=…] [key=…] [under=PERMIT] [peak=MIB] [least=MIB] [tokens=N]
        [try] [load] [since=MS]"""
        tier, name, _, model, *options = words
        given = dict(o.split("=") for o in options if "=" in o)
        request = Request(
            permit_id=name,
            model=model,
            tier=Tier[tier.upper()],
            arrived_ms=int(given.get("since", self.now)),
            lane=given.get("lane", ""),
            key=given.get("key", ""),
            parent=given.get("under", ""),
            preferred_mib=int(given.get("peak", 0)),
            minimum_mib=int(given.get("least", 0)),
            tokens=int(given.get("tokens", 0)),
            try_acquire="try" in options,
            load_only="load" in options,
        )
        return self.core.arrive(self.now, request)


def describe(effect: Effect) -> str:
    """One decision in words."""
    match effect:
        case Queued(name, position):
            return f"queued {name} at {position}"
        case Loading(name, model, progress):
            return f"tell {name}: {model} is {progress:.0%} loaded"
        case Grant():
            return _granted(effect)
        case Refuse(name, cause, detail, after):
            again = "" if after is None else f", retry in {after}ms"
            said = f" ({detail})" if detail else ""
            return f"refuse {name}: {cause.value}{said}{again}"
        case AskEngine(name, address, only):
            return f"ask {address} to end {name}" + (" unless it runs" if only else "")
        case AskLease(model, mib, tier, leave):
            beside = f", {leave} MiB beside" if leave else ""
            return f"ask lease for {model} ({mib} MiB{beside}, {tier.name})"
        case AskTransient(name, _, preferred, minimum, tier):
            least = f", at least {minimum}" if minimum != preferred else ""
            return f"ask peak for {name} ({preferred} MiB{least}, {tier.name})"
        case StartLoad(model, lease):
            return f"load {model} into {lease}"
        case ReturnLease(lease):
            return f"return {lease}"
        case CancelLoad(model, why):
            return f"give up loading {model}: {why}"
        case StartUnload(model, drain, force, why):
            end = f", ending what runs after {drain}ms" if force else ""
            return f"unload {model}{end}: {why}"
        case HoldChanged(lane, holder, running, expires):
            return f"tell {holder}: {lane} " + (
                f"is held until {expires}ms, {running} running" if expires else "is open"
            )


def _granted(grant: Grant) -> str:
    where = "" if grant.instance_id in ("", f"{grant.model}-1") else f" ({grant.instance_id})"
    lease = f" with {grant.lease_id}" if grant.lease_id else ""
    return f"grant {grant.permit_id} on {grant.model}{where}{lease} after {grant.waited_ms}ms"


def _facts(
    key: str, state: State, given: dict[str, str], old: ModelFacts | None, now: int
) -> ModelFacts:
    places = int(given.get("places", old.instances[0].places if old and old.instances else 4))
    ready = given.get("ready", "1").split(",")
    engines = tuple(
        InstanceFacts(
            f"{key}-{n}", state, f"unix:{key}-{n}", places, float(given.get("progress", 0))
        )
        for n in ready
        if state not in (State.COLD, State.FAILED)
    )
    return ModelFacts(
        key=key,
        lane=given.get("lane", old.lane if old else "chat"),
        state=state,
        resident_mib=int(given.get("mib", old.resident_mib if old else 100)),
        peak_mib=int(given.get("peak", old.peak_mib if old else 0)),
        family=given.get("family", old.family if old else ""),
        context_tokens=int(given.get("context", old.context_tokens if old else 0)),
        max_instances=int(given.get("most", old.max_instances if old else 1)),
        instances=engines,
        retry_at_ms=now + int(given.get("retry", 0)),
        failure="it broke" if state is State.FAILED else "",
    )


def _settings(given: dict[str, str]) -> Settings:
    def named(prefix: str) -> dict[str, str]:
        return {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}

    costs, ttls, pinned = named("cost."), named("ttl."), named("pinned.")
    rules = {
        key: ModelRule(float(costs.get(key, 1)), key in pinned, int(ttls.get(key, 0)))
        for key in (*costs, *ttls, *pinned)
    }
    sets = named("set.")
    words = "".join(c if c.isalnum() else " " for e in sets.values() for c in e).split()
    return Settings(
        4,
        lane_of,
        queue_limit=8,
        queue_limits={Tier[k.upper()]: int(v) for k, v in named("limit.").items()},
        promote_after_ms={Tier[k.upper()]: int(v) for k, v in named("promote.").items()},
        fairness=Fairness(
            weights={k: float(v) for k, v in named("weight.").items()},
            soft_inflight=int(given.get("soft", 0)),
            pending_per_key=int(given.get("pending", 1000)),
            pending_per_model=int(given.get("pending.model", 1000)),
        ),
        rules=rules,
        sets=parse_sets(sets, words) if sets else None,
        max_swap_delay_ms=int(given.get("swap", 15_000)),
        linger_ms=int(given.get("linger", 0)),
        drain_ms=int(given.get("drain", 60_000)),
        background_quiet_ms=int(given.get("quiet", 60_000)),
    )


def replay(text: str) -> Iterator[str]:
    """The transcript with what the core decides now, line by line."""
    world = World()
    commands: list[str] = []
    in_answer = False
    for line in text.splitlines():
        if line == "----":
            yield line
            in_answer = True
            for command in commands:
                yield from world.run(command)
            commands = []
        elif not line.strip():
            in_answer = False
            yield line
        elif not in_answer:
            yield line
            if not line.startswith("#"):
                commands.append(line)
