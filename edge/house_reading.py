"""What scheduler and broker tell, as the views of `house_views`. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from cohabit.broker.v1 import broker_pb2
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2
from edge import house_views as views

ModelStatus = scheduler_pb2.Status.ModelStatus


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower().replace("unspecified", "unknown")


def state_of(state: "models_pb2.ModelState.ValueType") -> views.State:
    """The state in a word."""
    if state not in models_pb2.ModelState.values():
        return "unknown"
    return cast("views.State", _word(models_pb2.ModelState.Name(state), "MODEL_STATE_"))


def _kind(kind: "models_pb2.ModelKind.ValueType") -> str:
    if kind not in models_pb2.ModelKind.values():
        return "unknown"
    return _word(models_pb2.ModelKind.Name(kind), "MODEL_KIND_")


def _tier(tier: "common_pb2.Tier.ValueType") -> str:
    return _word(common_pb2.Tier.Name(tier), "TIER_")


def degraded(models: Iterable[models_pb2.Model]) -> list[str]:
    """One sentence for each model that serves where it was not meant to."""
    ready = models_pb2.MODEL_STATE_READY
    return [
        f"The model '{model.key}' is degraded: {instance.placement.why}"
        for model in models
        for instance in model.instances
        if instance.state == ready and instance.placement.degraded
    ]


def refused_configurations(status: scheduler_pb2.Status) -> list[str]:
    """One sentence for each thing that is wrong in the configuration's files, said once however
    many services refuse it.
    """
    problems = dict.fromkeys(
        line for one in status.configurations for line in one.configuration.problem.splitlines()
    )
    return [f"The configuration is not taken as it stands: {line}" for line in problems]


def restarts_due(status: scheduler_pb2.Status) -> dict[str, list[str]]:
    """The keys that wait for a restart, by the service that has to."""
    return {
        one.service: list(one.configuration.restart_keys)
        for one in status.configurations
        if one.configuration.restart_keys
    }


def placement(instance: models_pb2.Instance) -> views.PlacementView | None:
    """None until its engine has told."""
    if not instance.HasField("placement"):
        return None
    told = instance.placement
    return views.PlacementView(
        kind=told.kind,
        device=told.device_name,
        gpu_layers=told.gpu_layers,
        layers=told.layers,
        degraded=told.degraded,
        profile=told.profile,
        why=told.why,
    )


def _instance(instance: models_pb2.Instance) -> views.InstanceView:
    return views.InstanceView(
        id=instance.instance_id,
        state=state_of(instance.state),
        places=instance.places,
        running=len(instance.running_permit_ids),
        load_progress=instance.load_progress,
        load_ms=instance.load_ms,
        memory_mib=instance.materialised_mib,
        placement=placement(instance),
        extras=[
            views.ExtraView(one.name, one.mib, bool(one.lease_id), one.why)
            for one in instance.extras
        ],
        speculation=_speculation(instance),
    )


def _speculation(instance: models_pb2.Instance) -> views.SpeculationView | None:
    if not instance.HasField("speculation"):
        return None
    told = instance.speculation
    return views.SpeculationView(told.drafted_tokens, told.accepted_tokens, told.saved_calls)


def _failure(model: models_pb2.Model) -> views.FailureView | None:
    if not model.HasField("failure"):
        return None
    told = model.failure
    return views.FailureView(told.reason, told.message, told.retry_at_unix_ms)


def model_view(model: models_pb2.Model, known: ModelStatus) -> views.ModelView:
    """A model; `known`: what the scheduler knows of it, empty if nothing."""
    return views.ModelView(**_common(model, known))


def _common(model: models_pb2.Model, known: ModelStatus) -> dict[str, Any]:
    return {
        "name": model.key,
        "kind": _kind(model.kind),
        "service": model.service,
        "family": model.family,
        "lane": model.lane,
        "state": state_of(model.state),
        "queue": views.QueueView(
            running=known.running,
            waiting=sum(line.waiting for line in known.waiting),
            last_used_unix_ms=known.last_used_unix_ms,
        ),
        "instances": [_instance(instance) for instance in model.instances],
        "max_instances": model.max_instances,
        "stale": model.stale,
        "removed": model.removed,
        "failure": _failure(model),
    }


def admin_model(model: models_pb2.Model, known: ModelStatus) -> views.AdminModel:
    """A model with all that can be done with it."""
    ready = models_pb2.MODEL_STATE_READY
    told = model.capabilities
    return views.AdminModel(
        **_common(model, known),
        places=sum(one.places for one in model.instances if one.state == ready),
        pinned=known.pinned,
        eviction_rank=known.eviction_rank,
        reload_ms=known.reload_ms,
        memory=views.MemoryView(
            resident_mib=model.footprint.resident_mib,
            peak_transient_mib=model.footprint.peak_transient_mib,
            measured=model.footprint.measured,
        ),
        capabilities=views.CapabilitiesView(
            context_tokens=told.context_tokens,
            input_modalities=list(told.input_modalities),
            tools=told.tools,
            thinking=told.thinking,
            structured_output=told.structured_output,
            infill=told.infill,
            translation=told.translation,
            embedding_dimensions=told.embedding_dimensions,
        ),
        overrides={name: _json(text) for name, text in sorted(model.overrides.items())},
        settings=[
            views.SettingView(one.name, _json(one.json_schema), _json(one.value))
            for one in model.settings
        ],
        owner=model.owner,
        created=model.created_unix_ms // 1000,
    )


def model_memory(model: models_pb2.Model) -> views.ModelMemory:
    """What a model takes of the device."""
    return views.ModelMemory(
        name=model.key,
        state=state_of(model.state),
        instances=len(model.instances),
        resident_mib=model.footprint.resident_mib,
        peak_transient_mib=model.footprint.peak_transient_mib,
        measured=model.footprint.measured,
        in_use_mib=sum(instance.materialised_mib for instance in model.instances),
    )


def device_view(memory: broker_pb2.DeviceMemory) -> views.DeviceView:
    """A device as the broker tells it."""
    return views.DeviceView(
        device=memory.device,
        kind=_word(broker_pb2.DeviceKind.Name(memory.kind), "DEVICE_KIND_"),
        description=memory.description,
        reachable=memory.reachable,
        total_mib=memory.total_mib,
        used_mib=max(0, memory.total_mib - memory.free_mib),
        free_mib=memory.free_mib,
        leased_mib=memory.leased_mib,
        unmaterialised_mib=memory.unmaterialised_mib,
        foreign_mib=memory.foreign_mib,
        floor_mib=memory.floor_mib,
        headroom_mib={_tier(room.tier): room.headroom_mib for room in memory.headroom},
    )


def tier_views(status: scheduler_pb2.Status) -> list[views.TierView]:
    """Who waits, by tier."""
    return [
        views.TierView(_tier(one.tier), one.waiting, one.queue_limit, one.oldest_wait_ms)
        for one in status.tiers
    ]


def by_key(status: scheduler_pb2.Status) -> Mapping[str, ModelStatus]:
    """What the scheduler knows of each model."""
    return {one.model_key: one for one in status.models}


def _json(text: str) -> Any:
    """A value that a service sent as JSON; one that is none, as it stands."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
