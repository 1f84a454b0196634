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
from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    Effect,
    Grant,
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
    """Lanes by name: chat costs 1, image 3, all everything; waits 60 s, runs 600 s."""
    return Lane(name, _DEFAULT_COSTS.get(name, 1), wait_ms=60_000, max_run_ms=600_000)


@dataclass
class World:
    """A core with 4 permits, and the clock of the transcript."""

    core: SchedulerCore = field(
        default_factory=lambda: SchedulerCore(4, lane_of, queue_limit=8, use_within_ms=5_000)
    )
    now: int = 0

    def run(self, line: str) -> list[str]:
        """Perform one command; what the core decided, a line each."""
        words = shlex.split(line)
        handler = getattr(self, f"do_{words[0]}", None)
        if handler is None:
            return [describe(e) for e in self._request(words)]
        return [describe(effect) for effect in handler(*words[1:])]

    def do_start(self) -> list[Effect]:
        """start: every model service has reported, granting begins."""
        return self.core.catalogue_complete(self.now)

    def do_silence(self) -> list[Effect]:
        """silence: some model service has not reported in time, granting begins all the same."""
        return self.core.reconcile(self.now)

    def do_model(self, key: str, state: str, *options: str) -> list[Effect]:
        """model KEY STATE [lane=chat] [mib=100] [places=4] [retry=MS] [progress=0.5]"""
        given = dict(option.split("=") for option in options)
        known = self.core.models.get(key)
        old = known.facts if known else None
        facts = ModelFacts(
            key=key,
            lane=given.get("lane", old.lane if old else "chat"),
            state=State[state],
            resident_mib=int(given.get("mib", old.resident_mib if old else 100)),
            places=int(given.get("places", (old.places if old else 0) or 4)),
            address=f"unix:{key}",
            instance_id=f"{key}-1",
            progress=float(given.get("progress", 0)),
            retry_at_ms=self.now + int(given.get("retry", 0)),
            failure="it broke" if state == "FAILED" else "",
        )
        return self.core.model_changed(self.now, facts)

    def do_gone(self, name: str) -> list[Effect]:
        """gone NAME: the caller closed its stream."""
        return self.core.leave(self.now, name)

    def do_started(self, name: str, model: str) -> list[Effect]:
        """started NAME MODEL: an engine took the request in."""
        return self.core.permit_started(self.now, name, model)

    def do_over(self, name: str) -> list[Effect]:
        """over NAME: the engine says nothing runs under it."""
        return self.core.permit_over(self.now, name)

    def do_runs(self, name: str) -> list[Effect]:
        """runs NAME: the engine was asked, and it is in use."""
        return self.core.permit_runs(name)

    def do_done(self, name: str) -> list[Effect]:
        """done NAME: the usual end: the engine reports it over, then the caller closes."""
        model = self.core.permits[name].model
        first = self.core.permit_started(self.now, name, model)
        second = self.core.permit_over(self.now, name)
        return [*first, *second, *self.core.leave(self.now, name)]

    def do_lease(self, key: str, answer: str) -> list[Effect]:
        """lease KEY granted|denied|never|unanswered"""
        if answer == "unanswered":
            self.core.lease_unanswered(self.now, key)
            return []
        if answer == "granted":
            return self.core.lease_granted(self.now, key, f"lease-{key}")
        return self.core.lease_denied(self.now, key, never=answer == "never", detail="too big")

    def do_loaded(self, key: str) -> list[Effect]:
        """loaded KEY: the load call returned."""
        return self.core.load_ended(self.now, key, None)

    def do_unloaded(self, key: str) -> list[Effect]:
        """unloaded KEY: the unload call returned."""
        return self.core.unload_ended(self.now, key)

    def do_unload(self, key: str) -> list[Effect]:
        """unload KEY: somebody wants it gone."""
        self.core.unload_asked(key, force=False)
        return []

    def do_lost(self, *keys: str) -> list[Effect]:
        """lost KEYS: their service does not answer."""
        self.core.worker_lost(keys)
        return []

    def do_snapshot(self, *pairs: str) -> list[Effect]:
        """snapshot KEY:STATE... [permit@KEY...]: a service reports everything."""
        models = dict(p.split(":") for p in pairs if ":" in p)
        running = dict(p.split("@") for p in pairs if "@" in p)
        facts = [
            ModelFacts(key, "chat", State[state], 100, 4, f"unix:{key}", f"{key}-1")
            for key, state in models.items()
        ]
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
        """TIER NAME wants MODEL [lane=…] [try] [load] [since=MS]"""
        tier, name, _, model, *options = words
        given = dict(o.split("=") for o in options if "=" in o)
        request = Request(
            permit_id=name,
            model=model,
            tier=Tier[tier.upper()],
            arrived_ms=int(given.get("since", self.now)),
            lane=given.get("lane", ""),
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
        case Grant(name, model, _, _, waited, _):
            return f"grant {name} on {model} after {waited}ms"
        case Refuse(name, cause, detail, after):
            again = "" if after is None else f", retry in {after}ms"
            said = f" ({detail})" if detail else ""
            return f"refuse {name}: {cause.value}{said}{again}"
        case AskEngine(name, address, only):
            return f"ask {address} to end {name}" + (" unless it runs" if only else "")
        case AskLease(model, mib, tier):
            return f"ask lease for {model} ({mib} MiB, {tier.name})"
        case StartLoad(model, lease):
            return f"load {model} into {lease}"
        case ReturnLease(lease):
            return f"return {lease}"
        case StartUnload(model):
            return f"unload {model}"


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
