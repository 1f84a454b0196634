"""The `scheduler` section of the configuration."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from chassis.config import Section

_MOST_S = 2_592_000
"""Thirty days; in milliseconds they fit the wire's 32 bits."""
_Seconds = Annotated[float, Field(gt=0, le=_MOST_S)]
_SecondsOrNone = Annotated[float, Field(ge=0, le=_MOST_S)]
_Weight = Annotated[float, Field(ge=0.000_001, le=1_000_000)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_TierName = Literal["paid", "sub", "free", "background"]


class LaneConfig(Section):
    """What one request of a lane costs and how long it may take."""

    cost: Annotated[int, Field(ge=1)] | Literal["all"] = 1
    """Permits; "all" runs alone on the device."""
    wait_s: _Seconds = 300.0
    """A request that waited this long is refused."""
    max_run_s: _Seconds = 1800.0
    """A request that ran this long is ended."""
    tier: Literal["background"] | None = None
    """Its requests run in the background, whatever tier was asked."""


class FairnessConfig(Section):
    """How clients share what is scarce."""

    default_weight: _Weight = 1.0
    weights: Mapping[str, _Weight] = {}
    """By fairness key: one of weight 2 gets twice the running time of one of weight 1."""
    pending_per_key: _Count = 1_000
    """Requests of one key that may wait for one model."""
    pending_per_model: _Count = 20_000
    """Requests that may wait for one model."""
    soft_inflight: Annotated[int, Field(ge=0)] = 0
    """Of one key on one model while another key waits for it; 0: no cap."""
    idle_ttl_s: _Seconds = 300.0
    """A key with nothing waiting or running is forgotten after this."""


class ModelRuleConfig(Section):
    """What is configured about the residency of one model."""

    eviction_cost: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0
    """Multiplies what its eviction weighs; 0: it goes first."""
    pinned: bool = False
    """Never evicted to make room; may be unloaded by hand."""
    idle_ttl_s: _SecondsOrNone = 0.0
    """Unloaded when unused for this long; 0: it stays until its memory is wanted."""


class ResidencyConfig(Section):
    """Which models live on the device."""

    sets: Mapping[str, str] = {}
    """Which models may live together: expressions of `&`, `|`, parentheses and `+set`."""
    models: Mapping[str, ModelRuleConfig] = {}
    """By model."""


class SchedulerConfig(Section):
    """Permits, lanes, queues, residency."""

    permits: Annotated[int, Field(ge=1, le=10_000)] = 4
    lanes: Mapping[str, LaneConfig] = {}
    """By name; a lane that is not listed has LaneConfig's defaults."""
    queue_limit: _Count = 20_000
    """Requests that may wait, per tier."""
    queue_limits: Mapping[_TierName, _Count] = {}
    """Where a tier's differs."""
    promote_after_s: Mapping[Literal["sub", "free", "background"], _Seconds] = {}
    """A request that waited this long in a tier goes up by one; a tier not named: never."""
    fairness: FairnessConfig = FairnessConfig()
    residency: ResidencyConfig = ResidencyConfig()
    max_swap_delay_s: _Seconds = 15.0
    """How long requests for resident models may delay one that needs another model."""
    linger_s: _SecondsOrNone = 2.0
    """How long an idle model that was just used, and whose requests come close after each other, is
    kept from a request of its tier or below that needs its memory."""
    drain_s: _Seconds = 60.0
    """Running work of a model that has to leave may take this long before it is ended."""
    background_quiet_s: _SecondsOrNone = 60.0
    """A background request evicts nothing that was used within this time."""
    memory_back_s: _Seconds = 30.0
    """The device may take this long to show as free what models that left held."""
    max_hold_s: _Seconds = 600.0
    """The longest that a lane may be held at a time."""
    use_within_s: _Seconds = 5.0
    """A grant that its engine has not seen by then lapses."""
    reconcile_s: _Seconds = 2.0
    """After a start nothing is granted until the engines have reported, at most this long."""
    workers: tuple[str, ...] | None = Field(default=None, strict=False)
    """Model services to schedule for; default: those that have a section."""
