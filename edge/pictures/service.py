"""What the diffusion service is asked without a place: what a picture would come to, and which
LoRAs there are. Neither wakes a model.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from chassis.channel import call_metadata
from chassis.status import fault_of
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.models.v1 import models_pb2

if TYPE_CHECKING:
    from cohabit.diffusion.v1.diffusion_pb2_grpc import DiffusionServiceAsyncStub

SERVICE = "diffusion"
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Peak:
    """Device memory that a picture adds while it is made."""

    preferred_mib: int = 0
    minimum_mib: int = 0


@dataclass(frozen=True, slots=True)
class DiffusionService:
    """The service that hosts diffusion models."""

    stub: "DiffusionServiceAsyncStub"

    async def peak(
        self, behind: Sequence[models_pb2.Model], wish: pb.PlanGenerationRequest
    ) -> Peak:
        """What a picture adds on whichever of the models makes it. Raises Fault."""
        plans = await asyncio.gather(*(self._plan(model.key, wish) for model in behind))
        return Peak(
            max((plan.preferred_transient_mib for plan in plans), default=0),
            max((plan.minimum_transient_mib for plan in plans), default=0),
        )

    async def loras(self, model: str) -> pb.ListLorasResponse:
        """The LoRAs that requests may name; of one model, or (empty) of all. Raises Fault."""
        asked = pb.ListLorasRequest(model=model)
        try:
            return await self.stub.ListLoras(asked, timeout=_ANSWER_S, metadata=call_metadata())
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, SERVICE) from None

    async def _plan(self, key: str, wish: pb.PlanGenerationRequest) -> pb.PlanGenerationResponse:
        asked = pb.PlanGenerationRequest()
        asked.CopyFrom(wish)
        asked.model = key
        try:
            return await self.stub.PlanGeneration(
                asked, timeout=_ANSWER_S, metadata=call_metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, SERVICE) from None
