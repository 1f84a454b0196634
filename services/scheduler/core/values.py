"""The words of the scheduler's core: what goes in, what comes out. Pure data.

Times are milliseconds on one clock that the caller chooses (the shell: the Unix epoch). Memory is
in MiB. What is made once a request is a slotted class and not frozen: freezing costs more than a
decision. Nobody changes one all the same.
"""

from dataclasses import dataclass, field
from enum import Enum, IntEnum


class Tier(IntEnum):
    """Higher goes first; values are those of cohabit.common.v1.Tier."""

    BACKGROUND = 1
    FREE = 2
    SUB = 3
    PAID = 4


class State(Enum):
    """A model's or instance's state; values are those of cohabit.models.v1.ModelState."""

    COLD = 1
    LOADING = 2
    READY = 3
    DRAINING = 4
    FAILED = 5


class Cause(Enum):
    """Why the core refuses a request or ends its permit."""

    MODEL_NOT_FOUND = "model_not_found"
    QUEUE_FULL = "queue_full"
    KEY_QUEUE_FULL = "fairness_key_queue_full"
    MODEL_QUEUE_FULL = "executor_queue_full"
    SATURATED = "saturated"
    ADMISSION_TIMEOUT = "admission_timeout"
    MODEL_FAILED = "model_failed"
    NEVER_FITS = "never_fits"
    PARENT_OVER = "permit_required"
    GRANT_LAPSED = "grant_lapsed"
    RUN_TOO_LONG = "run_too_long"


class Departure(Enum):
    """Why a model is told to leave."""

    MEMORY_WANTED = "memory_wanted"
    UNUSED = "unused"
    BY_HAND = "by_hand"
    LOAD_GIVEN_UP = "load_given_up"


@dataclass(frozen=True, slots=True)
class Lane:
    """What a request of this lane costs (permits; never more than there are) and its limits."""

    name: str
    cost: int
    wait_ms: int
    max_run_ms: int
    background: bool = False
    """Its requests run in the background tier, whatever was asked."""


@dataclass(slots=True, eq=False)
class Request:
    """A request that asks to run."""

    permit_id: str
    """Unique; names the request while it waits and the permit once granted."""
    model: str
    """A model's key, or a family of twins."""
    tier: Tier
    arrived_ms: int
    """Its first arrival: a request resumed after a restart keeps it."""
    lane: str = ""
    """Empty: the model's."""
    key: str = ""
    """Fairness key; requests without one share one."""
    try_acquire: bool = False
    load_only: bool = False
    """Wants the model resident and nothing run: granted without a permit."""
    parent: str = ""
    """The permit under which it runs; empty: none."""
    preferred_mib: int = 0
    """Device memory it adds at its peak; 0: what the model's footprint says."""
    minimum_mib: int = 0
    """The least it can do with; 0: the preferred amount."""
    tokens: int = 0
    """Of prompt and longest answer, to choose between twins; 0: not counted."""
    request_id: str = ""
    """The caller's name for it, shown in status."""


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """One engine process of a model, as its service reports it."""

    instance_id: str
    state: State
    address: str = ""
    places: int = 1
    """Requests it should run side by side."""
    progress: float = 0.0
    load_ms: int = 0
    extra_mib: int = 0
    """Optional memory that it has beside its lease."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model service reports of one model."""

    key: str
    lane: str
    state: State
    resident_mib: int
    peak_mib: int = 0
    """The most one request adds while it runs."""
    family: str = ""
    context_tokens: int = 0
    max_instances: int = 1
    instances: tuple[InstanceFacts, ...] = field(default=())
    retry_at_ms: int = 0
    failure: str = ""
    removed: bool = False
    """It is configured no more, and finishes what runs."""


# -- effects -----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Queued:
    """Tell the caller that it waits behind `position` others."""

    permit_id: str
    position: int


@dataclass(slots=True, eq=False)
class Loading:
    """Tell the caller how far the load of its model is."""

    permit_id: str
    model: str
    progress: float


@dataclass(slots=True, eq=False)
class Grant:
    """Tell the caller to run on this instance."""

    permit_id: str
    model: str
    address: str
    instance_id: str
    waited_ms: int
    max_run_ms: int
    lease_id: str = ""
    """For its transient memory; empty: it needs none."""
    lease_mib: int = 0


@dataclass(slots=True, eq=False)
class Refuse:
    """End the caller's stream with an error; it holds nothing any more."""

    permit_id: str
    cause: Cause
    detail: str = ""
    retry_after_ms: int | None = None


@dataclass(slots=True, eq=False)
class AskEngine:
    """Make the permit worthless at its engine, then report `permit_over` or `permit_runs`."""

    permit_id: str
    address: str
    only_if_not_started: bool


@dataclass(slots=True, eq=False)
class AskLease:
    """Ask the broker for a model's resident memory, then report `lease_granted`, `lease_denied`
    or `lease_unanswered`."""

    model: str
    resident_mib: int
    tier: Tier
    leave_mib: int
    """Headroom that must remain beside it."""


@dataclass(slots=True, eq=False)
class AskTransient:
    """Ask the broker for the peak of one request, then report `transient_granted`,
    `transient_denied` or `transient_unanswered`."""

    permit_id: str
    model: str
    preferred_mib: int
    minimum_mib: int
    tier: Tier
    leave_mib: int = 0
    """Headroom that must remain beside it."""


@dataclass(slots=True, eq=False)
class ReturnLease:
    """The lease is not wanted any more."""

    lease_id: str


@dataclass(slots=True, eq=False)
class StartLoad:
    """Have one more instance of the model loaded into the leased memory; report `load_ended`."""

    model: str
    lease_id: str


@dataclass(slots=True, eq=False)
class CancelLoad:
    """Give the load in progress up: its memory is wanted by a higher tier."""

    model: str
    why: str


@dataclass(slots=True, eq=False)
class StartUnload:
    """Have the model unloaded; report `unload_ended`.

    It may drain for `drain_ms`; with `force` what then still runs is ended with an error.
    """

    model: str
    drain_ms: int
    force: bool
    why: str
    cause: Departure = Departure.MEMORY_WANTED


@dataclass(slots=True, eq=False)
class HoldChanged:
    """Tell the holder of a lane how far it has drained; `expires_ms` 0: the hold is over."""

    lane: str
    holder: str
    running: int
    expires_ms: int


Effect = (
    Queued
    | Loading
    | Grant
    | Refuse
    | AskEngine
    | AskLease
    | AskTransient
    | ReturnLease
    | StartLoad
    | CancelLoad
    | StartUnload
    | HoldChanged
)
