"""Hosted models as cohabit.models.v1 messages."""

from typing import TYPE_CHECKING

from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting.core import State

if TYPE_CHECKING:
    from hosting.hosted import Hosted


def model_message(hosted: "Hosted") -> pb.Model:
    """The model as it stands."""
    spec, life = hosted.spec, hosted.life
    instance = instance_message(hosted)
    model = pb.Model(
        key=spec.key,
        kind=pb.ModelKind.ValueType(spec.kind.value),
        lane=spec.lane,
        family=spec.family,
        state=pb.ModelState.ValueType(life.state.value),
        footprint=common_pb2.Footprint(
            device=hosted.lease.device if hosted.lease else "",
            resident_mib=spec.resident_mib,
            peak_transient_mib=spec.peak_transient_mib,
        ),
        instances=[instance] if instance is not None else [],
        max_instances=1,
        capabilities=_capabilities(hosted),
        created_unix_ms=spec.created_unix_ms,
        owner=spec.owner,
    )
    if life.state is State.FAILED:
        model.failure.reason = life.reason
        model.failure.message = life.message
        model.failure.retry_at_unix_ms = life.retry_at_ms
    return model


def instance_message(hosted: "Hosted") -> pb.Instance | None:
    """The model's engine as it stands; None when there is none."""
    engine = hosted.engine
    if engine is None:
        return None
    ready = hosted.life.state in (State.READY, State.DRAINING)
    return pb.Instance(
        instance_id=engine.instance_id,
        state=pb.ModelState.ValueType(hosted.life.state.value),
        address=engine.address if ready else "",
        places=hosted.facts.places if hosted.facts else hosted.spec.places,
        lease_id=hosted.lease.lease_id if hosted.lease else "",
        running_permit_ids=sorted(hosted.permits),
        load_progress=hosted.progress,
        materialised_mib=hosted.materialised_mib,
        load_ms=hosted.load_ms,
    )


def _capabilities(hosted: "Hosted") -> pb.Capabilities:
    if hosted.facts is not None:
        return hosted.facts.capabilities
    return pb.Capabilities(
        context_tokens=hosted.spec.context_tokens, input_modalities=hosted.spec.modalities
    )
