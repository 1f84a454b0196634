"""Hosted models as cohabit.models.v1 messages."""

from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting.core import State
from hosting.extras import Asked
from hosting.hosted import Hosted
from hosting.tenancy import Tenancy
from hosting.values import Setting


def model_message(hosted: Hosted) -> pb.Model:
    """The model as it stands."""
    spec, record, state = hosted.spec, hosted.record, hosted.state
    model = pb.Model(
        key=spec.key,
        kind=pb.ModelKind.ValueType(spec.kind.value),
        lane=spec.lane,
        family=spec.family,
        state=pb.ModelState.ValueType(state.value),
        footprint=_footprint(hosted),
        instances=map(instance_message, hosted.tenancies),
        max_instances=spec.max_instances,
        capabilities=_capabilities(hosted),
        created_unix_ms=spec.created_unix_ms,
        owner=spec.owner,
        overrides=spec.overrides,
        settings=map(_setting, spec.settings),
        stale=hosted.stale,
        removed=hosted.removed,
    )
    if state is State.FAILED:
        model.failure.reason = record.reason
        model.failure.message = record.message
        model.failure.retry_at_unix_ms = record.retry_at_ms
    return model


def instance_message(tenancy: Tenancy) -> pb.Instance:
    """The instance as it stands."""
    engine, facts = tenancy.engine, tenancy.facts
    serves = tenancy.state in (State.READY, State.DRAINING)
    return pb.Instance(
        instance_id=tenancy.instance_id,
        state=pb.ModelState.ValueType(tenancy.state.value),
        address=engine.address if serves and engine is not None else "",
        places=facts.places if facts is not None else tenancy.spec.places,
        lease_id=tenancy.lease.lease_id,
        running_permit_ids=sorted(tenancy.permits),
        load_progress=tenancy.progress,
        materialised_mib=tenancy.usage.materialised_mib,
        load_ms=tenancy.load_ms,
        placement=facts.placement if facts is not None and facts.HasField("placement") else None,
        extras=map(_extra, tenancy.extras.asked),
        speculation=tenancy.speculation,
    )


def permit_change(tenancy: Tenancy, change: pb.PermitChange) -> pb.WatchModelsResponse:
    """What an engine said about a permit, with where that was."""
    told = pb.PermitChange()
    told.CopyFrom(change)
    told.model_key, told.instance_id = tenancy.spec.key, tenancy.instance_id
    return pb.WatchModelsResponse(permit=told)


def _extra(one: Asked) -> pb.Extra:
    lease_id = one.lease.lease_id if one.lease is not None else ""
    return pb.Extra(name=one.extra.name, mib=one.extra.mib, lease_id=lease_id, why=one.why)


def _setting(setting: Setting) -> pb.Setting:
    return pb.Setting(name=setting.name, json_schema=setting.json_schema, value=setting.value)


def _footprint(hosted: Hosted) -> common_pb2.Footprint:
    return common_pb2.Footprint(
        device=hosted.tenancies[0].lease.device if hosted.tenancies else "",
        resident_mib=hosted.resident_mib,
        peak_transient_mib=hosted.peak_transient_mib,
        measured=hosted.is_measured,
    )


def _capabilities(hosted: Hosted) -> pb.Capabilities:
    for tenancy in hosted.tenancies:
        if tenancy.facts is not None:
            return tenancy.facts.capabilities
    return pb.Capabilities(
        context_tokens=hosted.spec.context_tokens, input_modalities=hosted.spec.modalities
    )
