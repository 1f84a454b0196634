"""The `jobs` section of the configuration."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from chassis.config import LoosePath, Section

_MOST_S = 366 * 86_400.0

_Seconds = Annotated[float, Field(gt=0, le=_MOST_S)]


class JobsConfig(Section):
    """The job service."""

    dir: LoosePath | None = None
    """Database and files; default `jobs` in state_dir, from which a relative path counts."""
    running: Annotated[int, Field(ge=1, le=64)] = 2
    """Steps under way at once, those that wait for their turn on the device included."""
    queue_limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """Jobs that have not ended; one more is refused."""
    max_jobs: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Jobs on record; for one more the oldest that has ended goes."""
    max_mib: Annotated[int, Field(ge=256)] = 10_240
    """Inputs and results together; for more the oldest results go."""
    keep_s: _Seconds = 86_400.0
    """How long a job is kept after its end, unless it says otherwise."""
    max_keep_s: _Seconds = 604_800.0
    """The longest that a job may say."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    """A step whose engine broke down so often has failed."""
    retry_for_s: _Seconds = 86_400.0
    """A job that began this long ago is not tried again."""
    retry_first_s: _Seconds = 1.0
    """The pause after the first failure that passes; it doubles, up to retry_most_s."""
    retry_most_s: _Seconds = 60.0
    call_s: _Seconds = 21_600.0
    """One call may take so long, waiting included."""
    matte_model: str = ""
    """Cuts out where a job names none; default the first matting network there is."""
    format: Literal["webp", "png", "jpeg"] = "webp"
    """Of results, where a job names none; jpeg: webp for those with alpha."""
    quality: Annotated[int, Field(ge=1, le=100)] = 85
    """Of WebP and JPEG, where a job names none."""

    @model_validator(mode="after")
    def _kept_within_bounds(self) -> "JobsConfig":
        if self.keep_s > self.max_keep_s:
            raise ValueError("expected keep_s to be at most max_keep_s")
        if self.retry_first_s > self.retry_most_s:
            raise ValueError("expected retry_first_s to be at most retry_most_s")
        return self
