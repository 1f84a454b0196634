"""What every history of the admission core has: a setup, what people see of it, and the judge.

`tell` is one step: the core hears of one event, the judge weighs what it decided, and both are
compared. The events themselves are in `admission_world`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.settings import Fairness, ModelRule, Settings
from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    AskTransient,
    Effect,
    Grant,
    Lane,
    ModelFacts,
    Queued,
    Request,
    StartLoad,
    Tier,
)
from tests.deep.admission_oracle import Judge
from tests.deep.history import Transcript

START_MS = 1_000_000
LANES = {
    "chat": Lane("chat", 1, wait_ms=60_000, max_run_ms=20_000),
    "image": Lane("image", 3, wait_ms=30_000, max_run_ms=40_000),
    "whole": Lane("whole", 1_000_000, wait_ms=90_000, max_run_ms=40_000),
    "night": Lane("night", 1, wait_ms=90_000, max_run_ms=40_000, background=True),
    "train": Lane("train", 1_000_000, wait_ms=90_000, max_run_ms=40_000, background=True),
}
MODELS = {"m0": "chat", "m1": "image", "m2": "whole", "m3": "night", "m4": "chat"}
KEYS = ("", "ann", "bob", "cid")


def lane_of(name: str) -> Lane:
    """Every lane there is."""
    return LANES.get(name, LANES["chat"])


@dataclass(frozen=True)
class Setup:
    """What differs between histories."""

    permits: int = 4
    keyed: bool = False
    soft_inflight: int = 0
    short_queues: bool = False
    promote: bool = False
    peaks: bool = False
    places: int = 4
    replicas: bool = False
    """The chat model is there twice from the start."""

    def settings(self) -> Settings:
        """For the core and for the judge. Everything is pinned: residency is tested elsewhere."""
        short = self.short_queues
        return Settings(
            permits=self.permits,
            lane_of=lane_of,
            queue_limit=5 if short else 20_000,
            queue_limits={Tier.PAID: 7} if short else {},
            promote_after_ms={Tier.FREE: 10_000} if self.promote else {},
            use_within_ms=5_000,
            fairness=Fairness(
                weights={"ann": 2.0},
                pending_per_key=3 if short else 1_000,
                pending_per_model=4 if short else 20_000,
                soft_inflight=self.soft_inflight,
            ),
            rules={key: ModelRule(pinned=True) for key in MODELS},
            max_hold_ms=30_000,
        )


@dataclass(eq=False)
class Run:
    """A granted request as its engine and its caller see it."""

    model: str
    instance: str
    started: bool = False
    over: bool = False
    open: bool = True


@dataclass
class Stage:
    """The core, its judge, and what callers and services know."""

    setup: Setup
    now: int = START_MS
    transcript: Transcript = field(default_factory=Transcript)
    runs: dict[str, Run] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    """Who waits, as its caller remembers it."""
    facts: dict[str, ModelFacts] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    lease_asks: list[str] = field(default_factory=list)
    transient_asks: list[tuple[str, int]] = field(default_factory=list)
    engine_asks: list[tuple[str, bool]] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    leaving: set[str] = field(default_factory=set)
    count: int = 0

    def __post_init__(self) -> None:
        self.settings = self.setup.settings()
        self._new_core()

    def _new_core(self) -> None:
        self.core = SchedulerCore(self.settings)
        self.judge = Judge(self.settings, self.transcript.broken)

    def fresh(self, prefix: str) -> str:
        """A name nobody had."""
        self.count += 1
        return f"{prefix}{self.count}"

    # -- one step ----------------------------------------------------------------------------

    def tell(
        self, text: str, call: Callable[[], list[Effect] | None], judged: Callable[[], None]
    ) -> None:
        self.transcript.event(self.now, text)
        self.judge.begin(self.now)
        effects = call() or []
        self.transcript.effects(effects)
        judged()
        self.judge.judge(effects)
        self._compare()
        for effect in effects:
            self._perform(effect)
        for name in [n for n in self.requests if self.judge.waiter(n) is None]:
            del self.requests[name]

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Grant(name, model, _, instance) if name in self.core.permits:
                self.runs[name] = Run(model, instance)
            case AskLease(model):
                self.lease_asks.append(model)
            case AskTransient(name, _, preferred):
                self.transient_asks.append((name, preferred))
            case AskEngine(name, _, only):
                self.engine_asks.append((name, only))
            case StartLoad(model):
                self.loads.append(model)

    def _compare(self) -> None:
        """What the core believes to run is what the judge saw granted and not ended."""
        core, judge, broken = self.core, self.judge, self.transcript.broken
        held = {h.name: h.cost for h in judge.held}
        if core.permits.keys() != held.keys():
            raise broken(f"permits: core {sorted(core.permits)}, seen {sorted(held)}")
        granted = sum(h.cost + h.inherited for h in judge.held)
        aside = sum(w.cost for w in judge.waiters if w.asking_ms is not None)
        if not granted <= core.in_use <= granted + aside:
            raise broken(f"in use: core {core.in_use}, seen {granted} + {aside} set aside")
        adopted = sum(h.cost for h in judge.held if h.adopted)
        if granted > self.settings.permits and not adopted:
            raise broken(f"{granted} permits of {self.settings.permits} are out")
        told = [e.permit_id for e in core.queue_positions() if isinstance(e, Queued)]
        waiting = {w.name for w in judge.waiters}
        must = {w.name for w in judge.waiters if w.plain and w.asking_ms is None}
        if len(set(told)) != len(told) or not must <= set(told) <= waiting:
            raise broken(f"waiting: core {told}, seen {sorted(waiting)}")
        due, alarm = judge.deadline_ms(), core.next_alarm_ms
        if due is not None and (alarm is None or alarm > max(due, self.now)):
            raise broken(f"the next alarm is at {alarm}, something is due at {due}")
