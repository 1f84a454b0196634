"""What the scheduler's core is told once, at its start. Pure data; times in ms, memory in MiB."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.scheduler.core.sets import Rules
from services.scheduler.core.values import Lane, Tier


@dataclass(frozen=True, slots=True)
class Fairness:
    """How clients share what is scarce."""

    default_weight: float = 1.0
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of named keys; one of weight 2 gets twice the running time of one of weight 1."""
    pending_per_key: int = 1_000
    """Requests of one key that may wait for one model."""
    pending_per_model: int = 20_000
    """Requests that may wait for one model."""
    soft_inflight: int = 0
    """Of one key on one model while another key of its tier waits for that model; 0: no cap."""
    idle_ttl_ms: int = 300_000
    """A key with nothing waiting or running is forgotten after this."""


@dataclass(frozen=True, slots=True)
class ModelRule:
    """What is configured about the residency of one model."""

    eviction_cost: float = 1.0
    """Multiplies what its eviction weighs; 0: it goes first."""
    pinned: bool = False
    """Never evicted to make room; may be unloaded by hand."""
    idle_ttl_ms: int = 0
    """Unloaded when unused for this long; 0: it stays until its memory is wanted."""


ModelRules = Mapping[str, ModelRule]
"""By model key."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Permits, queues, fairness, residency."""

    permits: int
    lane_of: Callable[[str], Lane]
    queue_limit: int = 20_000
    """Requests that may wait, per tier."""
    queue_limits: Mapping[Tier, int] = field(default_factory=dict)
    """Per tier, where it differs."""
    promote_after_ms: Mapping[Tier, int] = field(default_factory=dict)
    """A request that waited this long in a tier goes up by one; absent: never."""
    use_within_ms: int = 5_000
    """A grant that its engine has not seen by then lapses."""
    fairness: Fairness = field(default_factory=Fairness)
    rules: ModelRules = field(default_factory=dict)
    sets: Rules | None = None
    """Which models may live together; None: all that fit."""
    max_swap_delay_ms: int = 15_000
    """How long requests for resident models may delay a request that needs a swap."""
    linger_ms: int = 0
    """How long an idle model that was just used is kept from a request of its tier or below that
    needs its memory, if its last requests came close after each other; never longer than
    `max_swap_delay_ms`."""
    drain_ms: int = 60_000
    """Running work of a model that has to leave may take this long before it is ended."""
    background_quiet_ms: int = 60_000
    """A background request evicts nothing that was used within this time."""
    memory_back_ms: int = 30_000
    """The device may take this long to show as free what models that left held."""
    max_hold_ms: int = 600_000
    """The longest that a lane may be held at a time."""
