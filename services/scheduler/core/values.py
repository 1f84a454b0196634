"""The words of the scheduler's core: what goes in, what comes out. Pure data.

Times are milliseconds on one clock that the caller chooses (the shell: the Unix epoch).
"""

from dataclasses import dataclass
from enum import Enum, IntEnum


class Tier(IntEnum):
    """Higher goes first; values are those of cohabit.common.v1.Tier."""

    BACKGROUND = 1
    FREE = 2
    SUB = 3
    PAID = 4


class State(Enum):
    """A model's state; values are those of cohabit.models.v1.ModelState."""

    COLD = 1
    LOADING = 2
    READY = 3
    DRAINING = 4
    FAILED = 5


class Cause(Enum):
    """Why the core refuses a request or ends its permit."""

    MODEL_NOT_FOUND = "model_not_found"
    QUEUE_FULL = "queue_full"
    SATURATED = "saturated"
    ADMISSION_TIMEOUT = "admission_timeout"
    MODEL_FAILED = "model_failed"
    NEVER_FITS = "never_fits"
    GRANT_LAPSED = "grant_lapsed"
    RUN_TOO_LONG = "run_too_long"


@dataclass(frozen=True, slots=True)
class Lane:
    """What a request of this lane costs (permits; never more than there are) and its limits."""

    name: str
    cost: int
    wait_ms: int
    max_run_ms: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request that asks to run."""

    permit_id: str
    """Unique; names the request while it waits and the permit once granted."""
    model: str
    tier: Tier
    arrived_ms: int
    """Its first arrival: a request resumed after a restart keeps it."""
    lane: str = ""
    """Empty: the model's."""
    try_acquire: bool = False
    load_only: bool = False
    """Wants the model resident and nothing run: granted without a permit."""
    request_id: str = ""
    """The caller's name for it, shown in status."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model service reports of one model."""

    key: str
    lane: str
    state: State
    resident_mib: int
    places: int = 1
    address: str = ""
    instance_id: str = ""
    progress: float = 0.0
    retry_at_ms: int = 0
    failure: str = ""


# -- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queued:
    """Tell the caller that it waits behind `position` others."""

    permit_id: str
    position: int


@dataclass(frozen=True, slots=True)
class Loading:
    """Tell the caller how far the load of its model is."""

    permit_id: str
    model: str
    progress: float


@dataclass(frozen=True, slots=True)
class Grant:
    """Tell the caller to run on this instance."""

    permit_id: str
    model: str
    address: str
    instance_id: str
    waited_ms: int
    max_run_ms: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """End the caller's stream with an error; it holds nothing any more."""

    permit_id: str
    cause: Cause
    detail: str = ""
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AskEngine:
    """Make the permit worthless at its engine, then report `permit_over` or `permit_runs`."""

    permit_id: str
    address: str
    only_if_not_started: bool


@dataclass(frozen=True, slots=True)
class AskLease:
    """Ask the broker for the model's resident memory, then report the answer."""

    model: str
    resident_mib: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class StartLoad:
    """Have the model loaded into the leased memory."""

    model: str
    lease_id: str


@dataclass(frozen=True, slots=True)
class ReturnLease:
    """The lease is not wanted any more."""

    lease_id: str


@dataclass(frozen=True, slots=True)
class StartUnload:
    """Have the idle model unloaded."""

    model: str


Effect = (
    Queued | Loading | Grant | Refuse | AskEngine | AskLease | StartLoad | ReturnLease | StartUnload
)
