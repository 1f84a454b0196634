"""What the scheduler knows, for people and probes: the models there are, and whether it is well."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import grpc
import msgspec

from chassis.channel import call_metadata
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from edge.errors import model_not_found

if TYPE_CHECKING:
    from cohabit.scheduler.v1 import scheduler_pb2_grpc

_ASK_S = 5.0
_PROBE_S = 1.0


class ModelObject(msgspec.Struct):
    """A model, in OpenAI's shape."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct):
    """All models."""

    data: list[ModelObject]
    object: Literal["list"] = "list"


class Health(msgspec.Struct, omit_defaults=True):
    """How the house is, as seen from the edge."""

    status: Literal["ok", "degraded"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Asks the scheduler."""

    scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub"

    async def models(self) -> ModelList:
        """Every model of every service that answers. Raises Fault."""
        try:
            answer = await self.scheduler.ListModels(
                pb.ListModelsRequest(), timeout=_ASK_S, metadata=call_metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "scheduler") from None
        return ModelList([_as_object(model) for model in answer.models])

    async def model(self, name: str) -> ModelObject:
        """One model. Raises Fault(MODEL_NOT_FOUND)."""
        for model in (await self.models()).data:
            if model.id == name:
                return model
        raise model_not_found(name)

    async def ready(self) -> pb.Status:
        """The scheduler's status. Raises Fault unless it answers and knows what runs."""
        try:
            answer = await self.scheduler.GetStatus(pb.GetStatusRequest(), timeout=_PROBE_S)
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error, "scheduler")
            raise Fault(Reason.SERVICE_UNAVAILABLE, fault.message, retry_after_s=1.0) from None
        if not answer.status.reconciled:
            message = "The scheduler has started and waits for the model services to report."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        return answer.status

    async def health(self) -> Health:
        """Never raises Fault: what is amiss is the answer."""
        try:
            status = await self.ready()
        except Fault as fault:
            return Health("degraded", fault.message)
        if status.unreachable_workers:
            names = ", ".join(status.unreachable_workers)
            return Health("degraded", f"These model services do not answer: {names}.")
        return Health("ok")


def _as_object(model: models_pb2.Model) -> ModelObject:
    return ModelObject(model.key, model.created_unix_ms // 1000, model.owner or "cohabit")
