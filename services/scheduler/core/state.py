"""What the scheduler's core remembers of a permit, of an instance and of a model. Pure."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.scheduler.core.line import Order
from services.scheduler.core.values import InstanceFacts, Lane, ModelFacts, Request, State

if TYPE_CHECKING:
    from services.scheduler.core.clients import Client

_GUESS_MIB_PER_MS = 1
"""A model that was never seen loading is expected to load at a gibibyte a second …"""
_GUESS_MS = 2_000
"""… after this."""


class Permit:
    """A granted permit."""

    __slots__ = (
        "address",
        "adopted",
        "asked",
        "charged_ms",
        "children",
        "client",
        "cost",
        "engine_over",
        "granted_ms",
        "instance_id",
        "lane",
        "lease_id",
        "lease_mib",
        "max_run_ms",
        "model",
        "over",
        "parent",
        "rank",
        "request",
        "seen",
        "stream_closed",
    )

    def __init__(
        self, request: Request, model: str, rank: int, cost: int, lane: Lane, client: "Client"
    ) -> None:
        self.request = request
        self.model = model
        self.rank = rank
        """The tier that its run counts in."""
        self.cost = cost
        self.lane = lane.name
        self.max_run_ms = lane.max_run_ms
        self.client = client
        self.address = self.instance_id = ""
        self.granted_ms = 0
        self.charged_ms = 0.0
        """Permit-milliseconds that its key has been charged for it already."""
        self.lease_id = ""
        self.lease_mib = 0
        self.parent: Permit | None = None
        self.children: set[Permit] | None = None
        """Permits out on its behalf; None: there were none."""
        self.seen = False
        """Its engine has taken the request in."""
        self.engine_over = self.stream_closed = False
        self.adopted = False
        """Learnt from an engine after a restart: it has no stream here."""
        self.asked = False
        """Its engine has been asked to end it."""
        self.over = False

    @property
    def name(self) -> str:
        """Of the request."""
        return self.request.permit_id


@dataclass(slots=True, eq=False)
class Instance:
    """One engine process as we use it."""

    facts: InstanceFacts
    running: int = 0
    """Permits out on it, and places set aside."""

    @property
    def free(self) -> int:
        """Requests that it can take now."""
        return self.facts.places - self.running if self.facts.state is State.READY else 0


@dataclass(slots=True, eq=False)
class Need:
    """Memory that a model's most urgent waiter wants and the broker has refused."""

    rank: int
    order: Order
    """Of that waiter."""
    due_ms: int
    """From then on nobody passes it any more."""
    amount_mib: int
    """What is to be had at least, beside what must be left."""
    victims: tuple[str, ...] = ()
    """Models that go for it; they are marked, or leave."""
    planned_ms: int = 0
    """When they were chosen, …"""
    headroom_mib: int = 0
    """… with how much to be had, …"""
    changes: int = 0
    """… and at which count of the books' changes."""
    spared: tuple[str, ...] = ()
    """The models that the waiter's parent, and what that runs under, run on."""


@dataclass(slots=True, eq=False)
class Model:
    """A model, as its service reports it and as we use it."""

    facts: ModelFacts
    instances: dict[str, Instance] = field(default_factory=dict)
    running: int = 0
    """Permits out on it, and places set aside."""
    open: bool = False
    """An instance takes requests and has a free place."""
    last_used_ms: int = 0
    granted_ms: int = 0
    """When it was granted to somebody last."""
    used: bool = False
    """Something has run on it since we know it."""
    reload_ms: int = 0
    """How long its last load took; 0: never seen."""
    reachable: bool = True
    """Its service answers."""
    asking: bool = False
    """A lease is being asked for."""
    starting: bool = False
    """StartLoad was performed and has not ended."""
    load_began_ms: int = 0
    pinned_by: str = ""
    """The waiter that it was loaded for, as long as that one waits."""
    pin_inherited: bool = False
    """That one was not who it was loaded for, who has gone."""
    leaving: bool = False
    """It is being unloaded, and the unload has not ended."""
    given_up: bool = False
    """Its load was to be given up; that may have come too late."""
    wanted_by: str = ""
    """The model whose need it is to go for."""
    least_rank: int = 0
    """What it takes: ranks from here up …"""
    before: Order | None = None
    """… and of the least of them only who came before this."""
    short: int = 0
    """A request's transient memory of this size was refused: such and larger ones stand aside until
    there may be more; 0: none was."""
    thirst: int = 0
    """As `short`, until some has been had, whether or not it may be asked for again."""
    short_for: str = ""
    """The waiter that was refused it."""
    gap_ms: int = 0
    """Between its last grants, as a moving mean; 0: there were not two."""
    last_rank: int = 0
    """The tier of what ran on it last."""
    ask_again_ms: int = 0
    """No lease is asked for before this."""
    denials: int = 0
    """Times in a row that one was refused."""
    asked_ms: int = 0
    """When one was asked for last, …"""
    asked_rank: int = 0
    """… and for somebody of which rank."""
    promised_mib: int = 0
    """What the last question left to more urgent needs."""
    for_others: bool = False
    """The last question left more than the model's own requests need."""
    doubtful: bool = False
    """Nobody who leaves would be enough: the next question is whether it fits at all."""
    need: Need | None = None
    vacated_ms: int = 0
    """When the victims of its need had left, as long as it has not the memory; 0: they have not."""
    transient_mib: int = 0
    """Leased for requests that run on it."""

    @property
    def key(self) -> str:
        """The model's."""
        return self.facts.key

    @property
    def serves(self) -> bool:
        """Takes requests, places aside."""
        return self.facts.state is State.READY and self.reachable and not self.leaving

    @property
    def resident(self) -> bool:
        """Holds memory, or is about to."""
        state = self.facts.state
        return self.starting or not (state is State.COLD or state is State.FAILED)

    @property
    def loading(self) -> bool:
        """On its way to the first instance that serves."""
        return self.facts.state is State.LOADING or (
            self.starting and self.facts.state is not State.READY
        )

    @property
    def expected_load_ms(self) -> int:
        """How long a load takes, as measured; else a guess from its size."""
        return self.reload_ms or _GUESS_MS + self.facts.resident_mib // _GUESS_MIB_PER_MS

    @property
    def held_mib(self) -> int:
        """What its instances hold while nothing runs on them."""
        extras_mib = sum(one.extra_mib for one in self.facts.instances)
        return self.facts.resident_mib * max(1, len(self.instances)) + extras_mib

    @property
    def peak_left_mib(self) -> int:
        """What a request may add yet, beside those that run."""
        return max(0, self.facts.peak_mib - self.transient_mib)

    @property
    def could_grow(self) -> bool:
        """All its places are taken, and it may have a further instance."""
        full = self.serves and not self.open and not self.short
        return full and len(self.instances) < self.facts.max_instances

    def note_use(self, now_ms: int) -> None:
        """A request is granted on it."""
        if self.used:
            gap_ms = now_ms - self.granted_ms
            self.gap_ms = (self.gap_ms + gap_ms) // 2 if self.gap_ms else max(1, gap_ms)
        self.last_used_ms = self.granted_ms = now_ms
        self.used = True

    def unmark(self) -> None:
        """Its memory is wanted no more: it takes whom it took before."""
        self.wanted_by = ""
        self.least_rank = 0
        self.before = None

    def loadable(self, now_ms: int) -> bool:
        """May be loaded: COLD, or FAILED and done with its cooling."""
        state = self.facts.state
        cooled = state is State.FAILED and self.facts.retry_at_ms <= now_ms
        return self.reachable and not self.starting and (state is State.COLD or cooled)

    def cooling_ms(self, now_ms: int) -> int:
        """How long a failed model may not be tried; 0 for any other."""
        if not self.facts.retry_at_ms:
            return 0
        return max(0, self.facts.retry_at_ms - now_ms) if self.facts.state is State.FAILED else 0

    def reported(self, facts: ModelFacts) -> None:
        """Take in what its service says; what we count of its instances stays."""
        self.facts = facts
        known = self.instances
        self.instances = {}
        for told in facts.instances:
            instance = known.get(told.instance_id) or Instance(told)
            if told.load_ms:
                self.reload_ms = told.load_ms
            instance.facts = told
            self.instances[told.instance_id] = instance
        self.refresh()

    def refresh(self) -> None:
        """Find out anew whether it is open."""
        self.open = self.serves and any(i.free > 0 for i in self.instances.values())

    def pick(self) -> Instance:
        """The least loaded instance that has a place; the model is open."""
        if len(self.instances) == 1:
            return next(iter(self.instances.values()))
        free = [i for i in self.instances.values() if i.free > 0]
        return min(free, key=lambda i: (i.running / i.facts.places, i.facts.instance_id))

    def occupy(self, instance: Instance) -> None:
        """A place is taken."""
        instance.running += 1
        self.running += 1
        if instance.running >= instance.facts.places:
            self.refresh()

    def found_running(self, instance_id: str) -> str:
        """Something runs on an instance that we did not grant; the instance's address."""
        self.running += 1
        instance = self.instances.get(instance_id)
        if instance is not None:
            instance.running += 1
        self.refresh()
        return instance.facts.address if instance is not None else ""

    def vacate(self, instance_id: str) -> None:
        """A place is free again."""
        self.running -= 1
        if (instance := self.instances.get(instance_id)) is not None:
            instance.running -= 1
            if not self.open:
                self.refresh()
