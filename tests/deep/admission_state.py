"""What the judge of the admission core remembers of a history: who waits, who runs, on what.

Lists, searched from end to end. Here too are the conditions that a request has to meet to start,
each counted anew whenever it is asked for. What they are asked for stays out.

Where the rules leave the core a choice, the judge knows three answers: surely (`YES`), possibly
(`MAYBE`), surely not (`NO`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from services.scheduler.core.settings import Settings
from services.scheduler.core.values import (
    Cause,
    InstanceFacts,
    Lane,
    ModelFacts,
    Request,
    State,
    Tier,
)

NO, MAYBE, YES = 0, 1, 2
ASK_AGAIN_MS = 500
"""How long requests of a model may stand aside whose transient memory was refused."""
A_LOAD_MS = 5_000
"""No load that was never measured may be expected to take longer."""

Broken = Callable[[str], Exception]


@dataclass(eq=False)
class Waiter:
    """A request that waits."""

    request: Request
    tier: Tier
    lane: Lane
    cost: int
    order: tuple[int, int]
    """First arrival; then the order in which we heard of them."""
    asking_ms: int | None = None
    """Its transient lease is being asked for since then; permits and a place are set aside."""
    unplaced: bool = False
    """The instance that a place was set aside on may be gone since."""
    asked_in_step: bool = False
    promoted: bool = False
    moved: bool = False
    """To another line, where its place among those of the same first arrival is open."""

    @property
    def name(self) -> str:
        return self.request.permit_id

    @property
    def model(self) -> str:
        return self.request.model

    @property
    def key(self) -> str:
        return self.request.key

    @property
    def plain(self) -> bool:
        """Stands in the permit scan: neither a child nor a mere wish for a load."""
        return not self.request.parent and not self.request.load_only


@dataclass(eq=False)
class Held:
    """A granted permit."""

    name: str
    model: str
    instance: str
    lane: Lane
    cost: int
    tier: Tier
    key: str
    granted_ms: int
    asked_ms: int
    lease: str = ""
    root: str = ""
    """Under whose permits it runs in the end; its own name if under nobody's."""
    inherited: int = 0
    """Permits of an ended parent that it still runs under."""
    adopted: bool = False
    seen: bool = False
    over: bool = False
    closed: bool = False
    first_end_ms: int | None = None
    asked_unused: bool = False
    asked_limit: bool = False


@dataclass
class Known:
    """A model as reported, and what is under way with it."""

    facts: ModelFacts
    reachable: bool = True
    leaving: bool = False
    asked: bool = False
    asked_tier: Tier = Tier.BACKGROUND
    leaves_more: bool = False
    """The open question leaves headroom for others too: no answer to it is for ever."""
    starting: bool = False
    loads_known: bool = False

    @property
    def ready(self) -> bool:
        return self.facts.state is State.READY and self.reachable and not self.leaving


@dataclass
class Span:
    """A fairness key's virtual time: between these two. Unfinished runs are in neither."""

    lo: float = 0.0
    hi: float = 0.0
    charged: bool = False
    idle_since_ms: int = 0


@dataclass
class Followed:
    """One life of a scheduler core, as seen from outside."""

    settings: Settings
    broken: Broken
    now: int = 0
    reconciled: bool = False
    catalogued: bool = False
    waiters: list[Waiter] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    models: dict[str, Known] = field(default_factory=dict)
    holds: dict[tuple[str, str], int] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    runs: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """How long requests of a lane and model ran."""
    frozen: dict[Tier, set[str | None]] = field(default_factory=dict)
    """Who may be the head that lacked permits, per tier; None among them: perhaps nobody."""
    ended: dict[str, str] = field(default_factory=dict)
    dry_until_ms: dict[str, int] = field(default_factory=dict)
    """Models whose transient memory was refused: who needs some may stand aside until then."""
    arrived: str = ""
    """Who came in this step."""
    answered: str = ""
    """Whose transient lease was granted in this step."""
    stray_leases: set[str] = field(default_factory=set)
    """Granted after their request was gone: to be returned in this very step."""
    must_refuse: dict[str, set[Cause]] = field(default_factory=dict)
    may_refuse: dict[str, set[Cause]] = field(default_factory=dict)
    must_ask: set[tuple[str, bool]] = field(default_factory=set)
    must_return: set[str] = field(default_factory=set)
    must_hold: dict[tuple[str, str], int] = field(default_factory=dict)
    heard: int = 0

    # -- finding -----------------------------------------------------------------------------

    def waiter(self, name: str) -> Waiter | None:
        return next((w for w in self.waiters if w.name == name), None)

    def permit(self, name: str) -> Held | None:
        return next((h for h in self.held if h.name == name), None)

    def _load(self, model: str, instance: InstanceFacts) -> int:
        name = instance.instance_id
        return sum(held.model == model and held.instance == name for held in self.held)

    def _cooling(self, known: Known) -> bool:
        return known.facts.state is State.FAILED and known.facts.retry_at_ms > self.now

    def _peak(self, waiter: Waiter) -> int:
        """The transient memory it needs: what it says, or what its model says."""
        known = self.models.get(waiter.model)
        return waiter.request.preferred_mib or (known.facts.peak_mib if known else 0)

    # -- the conditions ----------------------------------------------------------------------

    def _eligible(self, waiter: Waiter) -> int:
        """0a: ready, a free place, no hold, memory not refused a moment ago."""
        known = self.models.get(waiter.model)
        if known is None or not known.ready or waiter.asking_ms is not None:
            return NO
        if waiter.request.load_only or self._free_places(known, surely=False) <= 0:
            return NO
        parent = self.permit(waiter.request.parent)
        if waiter.request.parent and parent is None:
            return NO
        if self._held_up(waiter):
            # Whether those before its parent count, for whose lane it is too, is left open.
            if parent is None:
                return NO
            if parent.lane.name != waiter.lane.name:
                return MAYBE
        if parent is not None and parent.first_end_ms is not None:
            return MAYBE
        if self._free_places(known, surely=True) <= 0:
            return MAYBE
        dry = self._peak(waiter) and self.now < self.dry_until_ms.get(waiter.model, 0)
        return MAYBE if dry else YES

    def _free_places(self, known: Known, *, surely: bool) -> int:
        model = known.facts.key
        places = sum(
            max(0, i.places - self._load(model, i))
            for i in known.facts.instances
            if i.state is State.READY
        )
        asking = [w for w in self.waiters if w.asking_ms is not None and w.model == model]
        return places - sum(surely or not w.unplaced for w in asking)

    def _free_permits(self, *, surely: bool) -> int:
        """What is set aside for a model that stopped serving meanwhile is perhaps free again."""
        asking = [w for w in self.waiters if w.asking_ms is not None]
        aside = sum(w.cost for w in asking if surely or self.models[w.model].ready)
        return self.settings.permits - sum(h.cost + h.inherited for h in self.held) - aside

    def _background_barred(self) -> int:
        """0d: whether something of a higher tier runs or waits."""
        above_held = [held for held in self.held if held.tier > Tier.BACKGROUND]
        above_waits = [w for w in self.waiters if w.tier > Tier.BACKGROUND]
        if any(not h.adopted for h in above_held) or any(w.plain for w in above_waits):
            return YES
        # A child stands above all tiers; whether that bars background is left open.
        doubt = any(h.adopted for h in self.held) or any(w.request.parent for w in self.waiters)
        return MAYBE if doubt or above_waits else NO

    def _kept(self, tier: Tier, *, surely: bool) -> list[tuple[str, int]]:
        """0a: (model, permits) kept for waiters above `tier` whose model is coming."""
        kept = []
        for key in {w.model for w in self.waiters if w.tier > tier}:
            known = self.models.get(key)
            if known is None or (known.ready and not known.asked and not known.starting):
                continue
            coming = known.asked or known.starting or known.facts.state is State.LOADING
            # One that leaves as soon as it is READY does not come by what was asked for it before.
            coming = coming and known.facts.state is not State.READY
            above = [w for w in self.waiters if w.model == key and w.tier > tier and w.plain]
            above = [w for w in above if w.asking_ms is None or not (surely or known.ready)]
            first = min(above, key=lambda w: (-w.tier, w.order), default=None)
            if first is None:
                continue
            if not surely:
                kept.append((key, max(w.cost for w in above)))
            elif coming and known.reachable and not self._held_up(first):
                kept.append((key, first.cost))
        return kept

    def _held_up(self, waiter: Waiter) -> bool:
        return any(lane == waiter.lane.name for lane, _ in self.holds)

    def _starts_possibly(self, waiter: Waiter) -> bool:
        left = self._free_permits(surely=False) - waiter.cost
        kept = self._kept(waiter.tier, surely=True)
        runs = self.runs.get((waiter.lane.name, waiter.model), ())
        return left >= 0 and all(
            left >= cost or (runs and (self.models[key].loads_known or min(runs) <= A_LOAD_MS))
            for key, cost in kept
        )

    def _starts_surely(self, waiter: Waiter) -> bool:
        left = self._free_permits(surely=True) - waiter.cost
        return left >= sum(cost for _, cost in self._kept(waiter.tier, surely=False))
