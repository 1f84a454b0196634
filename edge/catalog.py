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
from edge.house_reading import degraded
from edge.keys.caller import Caller
from edge.roster import by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    status: Literal["ok", "degraded", "draining"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Asks the scheduler."""

    scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub"

    async def models(self, caller: Caller) -> ModelList:
        """Every name that the caller may ask for: models, and families of twins. Raises Fault."""
        named = await self.named(caller)
        return ModelList([_as_object(name, named[name]) for name in sorted(named)])

    async def named(self, caller: Caller) -> "dict[str, tuple[models_pb2.Model, ...]]":
        """Every such name, and who stands behind it. Raises Fault."""
        named = by_name(await self.listed())
        return {name: behind for name, behind in named.items() if caller.may_ask(name, behind)}

    async def behind(self, name: str, caller: Caller) -> "tuple[models_pb2.Model, ...]":
        """Who stands behind one name. Raises Fault: there is none, or not for this caller."""
        behind = by_name(await self.listed()).get(name, ())
        caller.check_model(name, behind)
        if not behind:
            raise model_not_found(name)
        return behind

    async def listed(self, within_s: float = _ASK_S) -> "Sequence[models_pb2.Model]":
        """What the scheduler lists. Raises Fault."""
        try:
            answer = await self.scheduler.ListModels(
                pb.ListModelsRequest(), timeout=within_s, metadata=call_metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "scheduler") from None
        return answer.models

    async def heard(self, service: str) -> bool:
        """Whether what `listed` does not tell of a service's models is not there. Raises Fault."""
        try:
            answer = await self.scheduler.GetStatus(
                pb.GetStatusRequest(), timeout=_ASK_S, metadata=call_metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "scheduler") from None
        return answer.status.reconciled and service not in answer.status.unreachable_workers

    async def model(self, name: str, caller: Caller) -> ModelObject:
        """One model. Raises Fault as `behind` does."""
        return _as_object(name, await self.behind(name, caller))

    async def ready(self) -> pb.Status:
        """The scheduler's status. Raises Fault unless it knows what runs and there is a model."""
        try:
            answer = await self.scheduler.GetStatus(pb.GetStatusRequest(), timeout=_PROBE_S)
        except grpc.aio.AioRpcError as error:
            raise _not_ready(fault_of(error, "scheduler").message) from None
        if not answer.status.reconciled:
            raise _not_ready("The scheduler has started and waits for the model services.")
        try:
            models = await self.listed(_PROBE_S)
        except Fault as fault:
            raise _not_ready(fault.message) from None
        if models:
            if sentences := degraded(models):
                raise _not_ready(sentences[0])
            return answer.status
        if answer.status.unreachable_workers:
            raise _not_ready(_unreachable(answer.status))
        raise _not_ready("There is no model; add one to the configuration and start again.")

    async def health(self) -> Health:
        """Never raises Fault: what is amiss is the answer."""
        try:
            status = await self.ready()
        except Fault as fault:
            return Health("degraded", fault.message)
        if status.unreachable_workers:
            return Health("degraded", _unreachable(status))
        return Health("ok")


def _not_ready(message: str) -> Fault:
    return Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)


def _unreachable(status: pb.Status) -> str:
    return f"These model services do not answer: {', '.join(status.unreachable_workers)}."


def _as_object(name: str, behind: "Sequence[models_pb2.Model]") -> ModelObject:
    created_s = max(model.created_unix_ms for model in behind) // 1000
    return ModelObject(name, created_s, behind[0].owner or "cohabit")
