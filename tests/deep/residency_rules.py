"""The rules of residency, judged by what the world has seen and not by what the core remembers.

Memory and leases (invariants 2 and 3), who may be unloaded for whom (4, 0d, 0e, 2a), who may be
granted and refused, and that nobody delays a swap beyond its bound (12). What happens, and when,
is in `residency_world` and `residency_life`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.sets import parse_sets
from services.scheduler.core.settings import Fairness, ModelRule, Settings
from services.scheduler.core.values import (
    Cause,
    Grant,
    Lane,
    ModelFacts,
    Refuse,
    Request,
    StartUnload,
    State,
    Tier,
)
from tests.deep.card import FLOORS, Card
from tests.deep.history import Transcript

START_MS = 1_000_000
SIZES = {"a": (3_000, 0), "b": (4_000, 500), "c": (6_000, 1_000), "d": (2_000, 0), "e": (9_600, 0)}
"""Resident and peak."""
SETS = {"": "", "sets": "(a | b) & (c | d) | e"}
ALLOWED = ({"a", "c"}, {"a", "d"}, {"b", "c"}, {"b", "d"}, {"e"})
"""The same, written out."""
LANES = {
    "chat": Lane("chat", 1, wait_ms=3_600_000, max_run_ms=600_000),
    "image": Lane("image", 2, wait_ms=3_600_000, max_run_ms=600_000),
    "train": Lane("train", 1, wait_ms=3_600_000, max_run_ms=600_000, background=True),
}
RUN_MS, STEP_MS = 200, 100
SETTLE_MS = 2_000
"""The device shows late what was given back; so long nobody else has to leave for it."""
BOUND_MS = 300_000
"""Once everything answers promptly, whoever still waits is served within this."""


@dataclass(frozen=True)
class Setup:
    """What differs between histories."""

    permits: int = 4
    sets: str = ""
    places: int = 2
    idle_ttl_ms: int = 0
    linger_ms: int = 0
    cheap: str = ""

    def settings(self) -> Settings:
        rules = {"a": ModelRule(idle_ttl_ms=self.idle_ttl_ms)}
        if self.cheap:
            rules[self.cheap] = ModelRule(eviction_cost=0.1)
        return Settings(
            permits=self.permits,
            lane_of=lambda name: LANES.get(name, LANES["chat"]),
            fairness=Fairness(),
            rules=rules,
            sets=parse_sets({"s": SETS[self.sets]}, SIZES) if self.sets else None,
            max_swap_delay_ms=3_000,
            linger_ms=self.linger_ms,
            drain_ms=2_000,
            background_quiet_ms=4_000,
            memory_back_ms=5_000,
        )


@dataclass(eq=False)
class Errand:
    """Something that the core wants done, or that is on its way to it."""

    what: str
    run: Callable[[], None]
    ruin: Callable[[], None] | None = None
    """How it goes wrong; None: it cannot."""


@dataclass(eq=False)
class Leaving:
    """An unload under way at its service."""

    model: str
    until_ms: int
    force: bool
    begun: bool = False


@dataclass
class Wish:
    """A lease that was asked for: who was the most urgent then, and what came of it."""

    first: str
    denied: bool = False
    in_way: frozenset[str] = frozenset()


@dataclass
class Rules:
    """What the world knows, and what must hold of it."""

    setup: Setup
    now: int = START_MS
    transcript: Transcript = field(default_factory=Transcript)
    card: Card = field(default_factory=Card)
    told: dict[str, ModelFacts] = field(default_factory=dict)
    """What the core was last told of each model."""
    lost: set[str] = field(default_factory=set)
    waiting: dict[str, Request] = field(default_factory=dict)
    running: dict[str, Grant] = field(default_factory=dict)
    """Granted, and its caller has not left."""
    started: dict[str, int] = field(default_factory=dict)
    """On an engine, since when."""
    ended: dict[str, str] = field(default_factory=dict)
    errands: list[Errand] = field(default_factory=list)
    leaving: dict[str, Leaving] = field(default_factory=dict)
    wishes: dict[str, Wish] = field(default_factory=dict)
    pinned: dict[str, str] = field(default_factory=dict)
    """Model → the waiter it was surely loaded for."""
    loaded_for: dict[str, set[str]] = field(default_factory=dict)
    """Model → who waited when its load began."""
    thirsty: set[str] = field(default_factory=set)
    """Models of which a request was denied its peak."""
    by_hand: set[str] = field(default_factory=set)
    vacated_ms: int = 0
    """When an engine ended last."""
    leases: dict[str, str] = field(default_factory=dict)
    """Granted to the core: for what; gone once used or returned."""
    used_ms: dict[str, int] = field(default_factory=dict)
    loads: int = 0
    swaps: int = 0
    count: int = 0
    tier_of: dict[str, Tier] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = self.setup.settings()
        self.core = SchedulerCore(self.settings)

    def broken(self, rule: str) -> Exception:
        return self.transcript.broken(rule)

    # -- what must hold ----------------------------------------------------------------------

    def check(self) -> None:
        """After every event: memory, permits, leases."""
        card = self.card
        missing = card.overcommitted_mib(self.now)
        if missing > card.excess_mib:
            raise self.broken(f"{missing} MiB are promised or used that the device has not")
        card.excess_mib = missing
        live = {lease.lease_id for lease in card.ledger.leases(self.now)}
        if gone := set(card.holding()) - live:
            raise self.broken(f"memory is held under leases that have ended: {sorted(gone)}")
        if self.core.in_use > self.settings.permits:
            raise self.broken(f"{self.core.in_use} permits are out")
        for name in self.core.permits:
            if name in self.waiting:
                raise self.broken(f"{name} waits and runs")

    # -- grants and ends ---------------------------------------------------------------------

    def _granted(self, grant: Grant) -> None:
        name, key = grant.permit_id, grant.model
        request = self.waiting.pop(name, None)
        if request is None:
            raise self.broken(f"{name} is granted, and is {self.ended.get(name, 'running')}")
        facts = self.told[key]
        if facts.state is not State.READY or key in self.lost:
            raise self.broken(f"{name} is granted on {key}, which is {facts.state}")
        if request.load_only:
            self.ended[name] = "granted"
            return
        if key in self.leaving:
            raise self.broken(f"{name} is granted on {key}, which is leaving")
        if not facts.instances or facts.instances[0].instance_id != grant.instance_id:
            raise self.broken(f"{name} is granted on an engine that is no more")
        permits = self.core.permits
        here = [n for n in self.busy(key) if permits[n].instance_id == grant.instance_id]
        if len(here) > self.setup.places:
            raise self.broken(f"{key} runs {here} on {self.setup.places} places")
        if SIZES[key][1] and self.leases.get(grant.lease_id) != name:
            raise self.broken(f"{name} is granted without memory for its peak")
        if not grant.lease_id:  # else it was chosen when its memory was asked for
            self._no_swap_delayed(request)
        self.used_ms[key] = self.now
        self.tier_of[name] = self._tier(request)
        self.running[name] = grant

    def _refused(self, refuse: Refuse) -> None:
        name, cause = refuse.permit_id, refuse.cause
        request = self.waiting.pop(name, None)
        if request is None:
            if self.running.pop(name, None) is None:
                raise self.broken(f"{name} is refused, and is {self.ended.get(name)}")
            if cause not in (Cause.GRANT_LAPSED, Cause.RUN_TOO_LONG):
                raise self.broken(f"{name} runs and ends with {cause}")
            return
        self.ended[name] = f"refused: {cause.value}"
        if cause is Cause.NEVER_FITS:
            resident, peak = SIZES[request.model]
            room = self.card.total_mib - FLOORS.of(self._tier(request))  # type: ignore[arg-type]
            if resident + peak <= room:
                raise self.broken(f"{name} needs {resident + peak} of {room}, and never fits")
        elif cause is Cause.SATURATED:
            if not request.try_acquire:
                raise self.broken(f"{name} has time and is refused: {cause}")
        elif cause is not Cause.MODEL_FAILED:
            raise self.broken(f"{name} is refused: {cause}")

    def _no_swap_delayed(self, request: Request) -> None:
        """12: who has waited `max_swap_delay_ms` is not delayed by newcomers any more."""
        wanting = [r for r in self.waiting.values() if self.told[r.model].state is State.COLD]
        wanting = [r for r in wanting if r.model not in self.lost and not r.load_only]
        first = min(wanting, key=self._urgency, default=None)
        if first is None or request.model == first.model or request.parent:
            return
        wish = self.wishes.get(first.model)
        if wish is None or not wish.denied or wish.first != first.permit_id:
            return
        if request.model not in wish.in_way or self._tier(first) is Tier.BACKGROUND:
            return
        mine, theirs = self._tier(request), self._tier(first)
        due = self.now - first.arrived_ms >= self.settings.max_swap_delay_ms
        later = request.arrived_ms > first.arrived_ms
        if mine < theirs or (mine == theirs and due and later):
            raise self.broken(
                f"{request.permit_id} is chosen for {request.model}, which is in the way of "
                f"{first.permit_id}"
            )

    def _surely_in_way(self, wanted: str, headroom_mib: int) -> list[str]:
        """Residents beside which the wanted model fits under no circumstances. Nobody, if one of
        those that hold memory cannot be sent away yet, or if that would not be enough: then they
        would go in vain. Nor while the device may not show what the last of them gave back."""
        if self.now < self.vacated_ms + SETTLE_MS:
            return []
        resident, peak = SIZES[wanted]
        room = self.card.total_mib - FLOORS.paid_mib
        holders = [key for key in SIZES if key != wanted and self._takes_memory(key)]
        freed = sum(SIZES[key][0] for key in holders)
        enough = headroom_mib + freed >= resident + peak
        if not enough or not all(self._can_be_sent_away(key) for key in holders):
            return []
        return [key for key in holders if resident + peak + SIZES[key][0] > room]

    def _can_be_sent_away(self, key: str) -> bool:
        ready = self.told[key].state is State.READY and key not in self.leaving
        pinned = self.loaded_for.get(key, set()) & self.waiting.keys()
        return ready and key not in self.lost and not pinned

    def _why_unload(self, unload: StartUnload) -> None:
        """Rules 4, 0d, 0e: who may be unloaded, for whom."""
        key = unload.model
        pin = self.pinned.get(key, "")
        wanting = [r for r in self.waiting.values() if not self._serves(r.model)]
        wanting += [r for r in self.waiting.values() if r.model != key and SIZES[r.model][1]]
        quiet_ms = self.now - self.used_ms.get(key, 0)
        ttl_ms = self.settings.rules.get(key, ModelRule()).idle_ttl_ms
        busy = self.busy(key)
        if not wanting:
            if not ttl_ms or quiet_ms < ttl_ms or busy:
                raise self.broken(f"{key} is unloaded for nobody")
            return
        barred = any(self._tier(r) > Tier.BACKGROUND for r in wanting)
        if pin in self.waiting and not self._pin_yields(self.waiting[pin], wanting):
            raise self.broken(f"{key} was loaded for {pin}, which still waits, and is unloaded")
        lately = quiet_ms < self.settings.background_quiet_ms
        if not barred and lately and not ttl_ms:
            raise self.broken(f"{key} was used {quiet_ms} ms ago; background evicts it")
        if busy:
            tiers = [self.tier_of[name] for name in busy]
            due = [r for r in wanting if self.now - r.arrived_ms >= self.settings.max_swap_delay_ms]
            above = [r for r in wanting if self._tier(r) > max(tiers)]
            if not due and not above:
                raise self.broken(f"{key} is busy with {busy}, nobody has waited long enough")
            if unload.drain_ms != self.settings.drain_ms:
                raise self.broken(f"{key} is busy with {busy}: {unload.drain_ms} ms to drain")

    def _pin_yields(self, waiter: Request, wanting: list[Request]) -> bool:
        """Where two would wait for each other for ever, the more urgent goes first: a background
        waiter starts only when nothing above it waits, and a peak that was denied needs memory."""
        first = min(wanting, key=self._urgency)
        if self._tier(waiter) is Tier.BACKGROUND and self._tier(first) > Tier.BACKGROUND:
            return True
        return waiter.model in self.thirsty and self._urgency(first) < self._urgency(waiter)

    # -- helpers -----------------------------------------------------------------------------

    def _tier(self, request: Request) -> Tier:
        return Tier.BACKGROUND if request.lane == "train" else request.tier

    def _urgency(self, request: Request) -> tuple[int, int, int]:
        return -self._tier(request), request.arrived_ms, int(request.permit_id[1:])

    def _first(self, key: str) -> Request | None:
        mine = [r for r in self.waiting.values() if r.model == key]
        return min(mine, key=self._urgency, default=None)

    def busy(self, key: str) -> list[str]:
        return [name for name, permit in self.core.permits.items() if permit.model == key]

    def _serves(self, key: str) -> bool:
        return self.told[key].state is State.READY and key not in self.lost

    def _takes_memory(self, key: str) -> bool:
        return self.card.engine(key) is not None or self.told[key].state in (
            State.READY,
            State.LOADING,
            State.DRAINING,
        )
