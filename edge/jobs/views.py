"""A job as HTTP tells it. Times are Unix seconds, as in all of OpenAI's objects."""

from typing import Literal

import msgspec

JobKindWord = Literal[
    "image_generation", "foreground_generation", "background_removal", "publication", "unknown"
]
JobStateWord = Literal["queued", "running", "succeeded", "failed", "cancelled", "unknown"]


class JobError(msgspec.Struct):
    """Why a job or a step ended, or waits to be tried again."""

    code: str
    """A stable word for machines."""
    message: str
    """A sentence for people."""
    retry_at: int | None
    """When trying again can help; null when it cannot."""


class JobStep(msgspec.Struct):
    """One call of a job."""

    kind: str
    """`generate`, `generate_backdrop`, `matte`, `composite`, `publish`."""
    state: str
    """`pending`, `waiting`, `running`, `done`, `failed`, `skipped`."""
    progress: float
    index: int
    """Which of several alike."""
    model: str | None
    """Who served it, or shall."""
    attempts: int
    """Begun this often: more than once after a restart, or a failure that passed."""
    error: JobError | None
    """Of the last attempt."""
    started_at: int | None
    ended_at: int | None


class JobResult(msgspec.Struct):
    """A file that a job made."""

    id: str
    role: str
    """`image`, `cutout`, `matte`, `background`, `backdrop`, `source`."""
    index: int
    """Which of several alike."""
    mime_type: str
    size_bytes: int
    sha256: str
    """In hexadecimal; the `etag` of its route, too."""
    width: int
    height: int
    seed: int | None
    """Of the generated picture behind it."""
    url: str
    """Where this house gives the bytes."""
    published_url: str | None
    expired: bool
    """The file is gone; this record is what is left."""


class JobRequest(msgspec.Struct, omit_defaults=True):
    """What was asked for; what is not there was left to the models."""

    model: str = ""
    prompt: str = ""
    negative_prompt: str = ""
    n: int = 0
    width: int = 0
    height: int = 0
    steps: int = 0
    guidance: float | None = None
    seed: int | None = None
    """As given, or as drawn when the job was accepted."""
    matte_model: str = ""
    background: str = ""
    """A colour, `estimated`, `image` or `generated`."""
    background_prompt: str = ""
    background_strength: float | None = None


class JobView(msgspec.Struct):
    """A job as it stands."""

    id: str
    kind: JobKindWord
    state: JobStateWord
    revision: int
    """Grows with every change."""
    progress: float
    """0 to 1, over all steps."""
    position: int | None
    """Jobs before it, while it is queued."""
    cancel_requested: bool
    steps: list[JobStep]
    results: list[JobResult]
    """All of them once it has succeeded; none before."""
    error: JobError | None
    """Why it failed."""
    request: JobRequest | None
    """Told of a single job, not in lists and events."""
    idempotency_key: str | None
    request_id: str
    created_at: int
    started_at: int | None
    ended_at: int | None
    expires_at: int | None
    """When job and files are removed at the latest."""
    object: Literal["job"] = "job"


class JobPage(msgspec.Struct):
    """Jobs, newest first."""

    data: list[JobView]
    next_page_token: str | None
    """The `page_token` of the page behind this one; null on the last."""
    object: Literal["list"] = "list"
