"""What the matting service is asked without a place: what a removal adds. It wakes no model."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from chassis.channel import call_metadata
from chassis.errors import Reason
from chassis.status import fault_of
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.models.v1 import models_pb2
from imaging.header import Size, size_px

if TYPE_CHECKING:
    from cohabit.matte.v1.matte_pb2_grpc import MatteServiceAsyncStub

SERVICE = "matte"
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class MatteService:
    """The service that hosts matting networks."""

    stub: "MatteServiceAsyncStub"

    async def peak_mib(self, behind: Sequence[models_pb2.Model], picture: bytes) -> int:
        """Device memory that a removal adds, on whichever of the networks makes it.

        0, as for the largest picture, where the header tells no size, or nobody answers: what
        becomes of requests meanwhile, the scheduler says. Raises Fault.
        """
        size = size_px(picture)
        if size is None:
            return 0
        plans = await asyncio.gather(*(self._planned_mib(model.key, size) for model in behind))
        return max(plans, default=0)

    async def _planned_mib(self, key: str, size: Size) -> int:
        asked = pb.PlanRemovalRequest(model=key, width_px=size[0], height_px=size[1])
        try:
            plan = await self.stub.PlanRemoval(asked, timeout=_ANSWER_S, metadata=call_metadata())
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error, SERVICE)
            if fault.reason is Reason.SERVICE_UNAVAILABLE:
                return 0
            raise fault from None
        return plan.transient_mib
