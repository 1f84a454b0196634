"""What the house is, as JSON: models, their engines, the device. `house_reading` fills them."""

from typing import Any, Literal

import msgspec

from edge.signals.failures import Failure

State = Literal["cold", "loading", "ready", "draining", "failed", "unknown"]


class PlacementView(msgspec.Struct):
    """Where an engine computes, and by which settings."""

    kind: str
    """gpu, partial or cpu."""
    device: str
    gpu_layers: int
    layers: int
    degraded: bool
    """It was meant for a card and computes on the CPU."""
    profile: str
    """The device profile that its sizes come from."""
    why: str


class ExtraView(msgspec.Struct):
    """Memory that an engine can do without."""

    name: str
    mib: int
    granted: bool
    why: str
    """Why it was not granted."""


class SpeculationView(msgspec.Struct):
    """What guessing ahead has come to since the engine's start."""

    drafted_tokens: int
    accepted_tokens: int
    saved_calls: int


class InstanceView(msgspec.Struct):
    """One engine process."""

    id: str
    state: State
    places: int
    running: int
    load_progress: float
    load_ms: int
    memory_mib: int
    """In use, as last reported."""
    placement: PlacementView | None
    extras: list[ExtraView]
    speculation: SpeculationView | None
    """None: it does not guess."""


class FailureView(msgspec.Struct):
    """Why a model failed."""

    reason: str
    message: str
    retry_at_unix_ms: int


class QueueView(msgspec.Struct):
    """What runs on a model, and what waits for it."""

    running: int
    waiting: int
    last_used_unix_ms: int
    """0: never."""


class ModelView(msgspec.Struct):
    """A configured model."""

    name: str
    kind: str
    service: str
    family: str
    lane: str
    state: State
    queue: QueueView
    instances: list[InstanceView]
    max_instances: int
    failure: FailureView | None


class SettingView(msgspec.Struct):
    """A setting that may be overridden for the next load."""

    name: str
    limits: dict[str, Any]
    """A JSON schema."""
    value: Any
    """What the next load takes."""


class CapabilitiesView(msgspec.Struct):
    """What a model accepts."""

    context_tokens: int
    input_modalities: list[str]
    tools: bool
    thinking: bool
    structured_output: bool
    infill: bool
    translation: bool
    embedding_dimensions: int


class MemoryView(msgspec.Struct):
    """Memory that one instance of a model needs."""

    resident_mib: int
    peak_transient_mib: int
    """What one request adds, at most."""
    measured: bool
    """Seen on this device; false: estimated."""


class AdminModel(ModelView):
    """A configured model, and what can be done with it."""

    places: int
    """Of all its engines that serve."""
    pinned: bool
    eviction_rank: int
    """1 goes first; 0: it is not evictable now."""
    reload_ms: int
    memory: MemoryView
    capabilities: CapabilitiesView
    overrides: dict[str, Any]
    """Settings of the next load that differ from the configuration."""
    settings: list[SettingView]
    owner: str
    created: int


class AdminModelList(msgspec.Struct):
    """All configured models."""

    data: list[AdminModel]
    object: Literal["list"] = "list"


class DeviceView(msgspec.Struct):
    """Memory of one device."""

    device: str
    kind: str
    description: str
    reachable: bool
    """False: the driver does not answer, and the figures are the last known ones."""
    total_mib: int
    used_mib: int
    free_mib: int
    leased_mib: int
    unmaterialised_mib: int
    """Leased, but not in use yet."""
    foreign_mib: int
    """In use by processes without a lease."""
    floor_mib: int
    headroom_mib: dict[str, int]
    """What a new lease could be granted now, by tier."""


class ModelMemory(msgspec.Struct):
    """What a model takes of the device."""

    name: str
    state: State
    instances: int
    resident_mib: int
    peak_transient_mib: int
    measured: bool
    in_use_mib: int
    """By all its engines, as last reported."""


class GpuMemory(msgspec.Struct):
    """The device, and what each model takes of it."""

    devices: list[DeviceView]
    models: list[ModelMemory]


class PermitsView(msgspec.Struct):
    """What runs at once, over all models."""

    total: int
    in_use: int


class TierView(msgspec.Struct):
    """Requests of one tier that wait."""

    tier: str
    waiting: int
    queue_limit: int
    oldest_wait_ms: int


class EdgeView(msgspec.Struct):
    """The edge, which answers this."""

    uptime_s: int
    """Of the worker that answers."""
    draining: bool
    """It has been told to stop, and finishes what runs."""
    workers: int
    workers_up: int
    failures: list[Failure]
    """The last answers of 5xx, at most five; /errors has more."""


class HouseStatus(msgspec.Struct):
    """What this house is, at one moment."""

    version: str
    status: Literal["ok", "degraded"]
    reasons: list[str]
    """What is amiss, one sentence each."""
    edge: EdgeView
    services: dict[str, Literal["ok", "unreachable"]]
    devices: list[DeviceView]
    permits: PermitsView
    queue: list[TierView]
    models: list[ModelView]


class Overrides(msgspec.Struct, forbid_unknown_fields=True):
    """How a model is to be loaded."""

    overrides: dict[str, Any] | None = None
    """Settings for the next load, in place of former ones; {} takes all back."""


class UnloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """How a model is to be unloaded."""

    drain_s: float | None = None
    """How long what runs may take to finish; default: the service's."""
    force: bool = False
    """End what still runs then."""


class SwapBody(msgspec.Struct, forbid_unknown_fields=True):
    """Another file for a model."""

    path: str
    """Inside the swap directory."""
    overrides: dict[str, Any] = {}
    """Settings that come with it."""
    drain_s: float | None = None
    """How long what runs may take to finish; default: the service's."""


TYPES = (HouseStatus, AdminModelList, AdminModel, GpuMemory, Overrides, UnloadBody, SwapBody)
"""Bodies of the routes, for the OpenAPI document."""
