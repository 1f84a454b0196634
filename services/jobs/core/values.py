"""What a job is: values that the core decides on, the store keeps and the servicer shows.

The numbers of the enums are those of cohabit.jobs.v1, and stand in the store: they never change.
"""

from dataclasses import dataclass
from enum import IntEnum


class JobKind(IntEnum):
    """What a job does."""

    IMAGE_GENERATION = 1
    FOREGROUND_GENERATION = 2
    BACKGROUND_REMOVAL = 3


class JobState(IntEnum):
    """Where a job is in its life; `core.life` says what follows what."""

    QUEUED = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELLED = 5


class StepKind(IntEnum):
    """What a step does."""

    GENERATE = 1
    GENERATE_BACKDROP = 2
    MATTE = 3
    COMPOSITE = 4


class StepState(IntEnum):
    """Where a step is."""

    PENDING = 1
    WAITING = 2
    RUNNING = 3
    DONE = 4
    FAILED = 5
    SKIPPED = 6


class Role(IntEnum):
    """What a picture is to its job."""

    IMAGE = 1
    CUTOUT = 2
    MATTE = 3
    BACKGROUND = 4
    BACKDROP = 5
    SOURCE = 6


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something ended; `reason` is a word of the house's table of errors."""

    reason: str
    message: str
    retry_at_ms: int = 0
    """0: it is not tried again."""


@dataclass(frozen=True, slots=True)
class Input:
    """A picture that came with the job, as a file in its folder."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """A picture that a step made, as a file in the job's folder."""

    name: str
    role: Role
    index: int
    """Which of several alike."""
    kept: bool
    """A result of the job; else only for its later steps."""
    mime_type: str
    size_bytes: int
    sha256: bytes
    width_px: int
    height_px: int
    seed: int | None = None
    """Of the generated picture behind it; None: none was."""

    @property
    def result_id(self) -> str:
        """Unique among the kept ones of a job."""
        return f"{self.role.name.lower()}-{self.index}"


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a job."""

    kind: StepKind
    model: str
    """Who shall serve it, then who does; empty: no model."""
    index: int = 0
    """Which of several alike."""
    state: StepState = StepState.PENDING
    progress: float = 0.0
    attempts: int = 0
    """Begun this often."""
    misses: int = 0
    """Failures in a row that pass; they set the pause before the next attempt."""
    breakdowns: int = 0
    """Of these, the ones that may be the request's own doing."""
    failure: Failure | None = None
    started_ms: int = 0
    ended_ms: int = 0
    outcomes: tuple[Outcome, ...] = ()
    """What it made, once it is DONE."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it stands. Times are milliseconds since the Unix epoch; 0: not yet."""

    job_id: str
    seq: int
    """Grows with every job that was accepted."""
    owner: str
    kind: JobKind
    steps: tuple[Step, ...]
    created_ms: int
    keep_ms: int
    """How long it is kept after its end."""
    request_hash: bytes
    """Of all that was asked for, to tell a repeated request from another one."""
    idempotency_key: str = ""
    request_id: str = ""
    inputs: tuple[Input, ...] = ()
    state: JobState = JobState.QUEUED
    revision: int = 1
    cancel_requested: bool = False
    failure: Failure | None = None
    started_ms: int = 0
    ended_ms: int = 0
    expires_ms: int = 0
    expired: bool = False
    """Its files went before their time, for want of space."""

    @property
    def ended(self) -> bool:
        """Its state is final."""
        return self.state >= JobState.SUCCEEDED

    @property
    def results(self) -> tuple[Outcome, ...]:
        """What it was for, the picture that was asked for first; empty until it has succeeded."""
        if self.state is not JobState.SUCCEEDED:
            return ()
        kept = (made for step in self.steps for made in step.outcomes if made.kept)
        return tuple(sorted(kept, key=lambda made: (made.role, made.index)))


@dataclass(frozen=True, slots=True)
class Draft:
    """A job that is asked for; its inputs lie in its folder already."""

    job_id: str
    owner: str
    kind: JobKind
    steps: tuple[Step, ...]
    keep_ms: int
    request_hash: bytes
    idempotency_key: str
    request_id: str
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of the book."""

    running: int
    """Steps that are under way at once."""
    open_jobs: int
    """Jobs that have not ended."""
    jobs: int
    """Jobs in all."""
    bytes: int
    """Of inputs, outcomes and results together."""


@dataclass(frozen=True, slots=True)
class Put:
    """Write the job as it is now; once it is written, tell who watches it."""

    job: Job


@dataclass(frozen=True, slots=True)
class Remove:
    """Forget the job: its row, then its folder."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete files of the job that nothing refers to any more."""

    job_id: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Run the step at this place of the job."""

    job: Job
    position: int


@dataclass(frozen=True, slots=True)
class Stop:
    """End the step that runs; its end is told by `stopped`."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell who watches the job; nothing of it is written."""

    job: Job


Effect = Put | Remove | Drop | Begin | Stop | Tell


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job is in the book; `existing`: it had been, under this idempotency key."""

    job: Job
    existing: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The job was not accepted; `reason` is a word of the house's table of errors."""

    reason: str
    message: str
    retry_after_s: float | None = None
