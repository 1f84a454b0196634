"""What the diffusion model services are asked without a place: what a picture would come to, and
which LoRAs there are. Neither wakes a model.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc

from chassis.channel import call_metadata
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.diffusion.v1 import diffusion_pb2_grpc
from cohabit.models.v1 import models_pb2

SERVICE = "diffusion"
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Peak:
    """Device memory that a picture adds while it is made."""

    preferred_mib: int = 0
    minimum_mib: int = 0


class DiffusionService:
    """The services that host diffusion models, at the addresses given by their names."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses
        self._stubs = Channels(max(1, len(addresses)), diffusion_pb2_grpc.DiffusionServiceStub)

    async def close(self) -> None:
        """Close the connections."""
        await self._stubs.close()

    async def peak(
        self, behind: Sequence[models_pb2.Model], wish: pb.PlanGenerationRequest
    ) -> Peak:
        """What a picture adds on whichever of the models makes it. Raises Fault."""
        plans = await asyncio.gather(*(self._plan(model, wish) for model in behind))
        return Peak(
            max((plan.preferred_transient_mib for plan in plans), default=0),
            max((plan.minimum_transient_mib for plan in plans), default=0),
        )

    async def loras(self, model: str) -> pb.ListLorasResponse:
        """The LoRAs that requests may name; of one model, or (empty) of all. Raises Fault."""
        async with self._stubs.to(self._address(SERVICE)) as stub:
            try:
                return await stub.ListLoras(
                    pb.ListLorasRequest(model=model), timeout=_ANSWER_S, metadata=call_metadata()
                )
            except grpc.aio.AioRpcError as error:
                raise fault_of(error, SERVICE) from None

    async def _plan(
        self, model: models_pb2.Model, wish: pb.PlanGenerationRequest
    ) -> pb.PlanGenerationResponse:
        asked = pb.PlanGenerationRequest()
        asked.CopyFrom(wish)
        asked.model = model.key
        async with self._stubs.to(self._address(model.service)) as stub:
            try:
                return await stub.PlanGeneration(asked, timeout=_ANSWER_S, metadata=call_metadata())
            except grpc.aio.AioRpcError as error:
                raise fault_of(error, model.service) from None

    def _address(self, service: str) -> str:
        if service not in self._addresses:
            message = f"The service `{service}` is not one that this edge can reach."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        return self._addresses[service]
