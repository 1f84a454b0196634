"""The `scheduler` section of the configuration."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from chassis.config import Section


class LaneConfig(Section):
    """What one request of a lane costs and how long it may take."""

    cost: Annotated[int, Field(ge=1)] | Literal["all"] = 1
    """Permits; "all" runs alone on the device."""
    wait_s: Annotated[float, Field(gt=0)] = 300.0
    """A request that waited this long is refused."""
    max_run_s: Annotated[float, Field(gt=0)] = 1800.0
    """A request that ran this long is ended."""


class SchedulerConfig(Section):
    """Permits, lanes, queues."""

    permits: Annotated[int, Field(ge=1, le=10_000)] = 4
    lanes: Mapping[str, LaneConfig] = {}
    """By name; a lane that is not listed has LaneConfig's defaults."""
    queue_limit: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    """Requests that may wait, per tier."""
    use_within_s: Annotated[float, Field(gt=0)] = 5.0
    """A grant that its engine has not seen by then lapses."""
    reconcile_s: Annotated[float, Field(gt=0)] = 2.0
    """After a start nothing is granted until the engines have reported, at most this long."""
    workers: tuple[str, ...] = Field(default=("llm",), strict=False)
    """Model services to schedule for."""
