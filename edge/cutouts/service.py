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
from edge.errors import renamed
from edge.pictures.source import WIDEST
from imaging.decode import Probed, probe

if TYPE_CHECKING:
    from cohabit.matte.v1.matte_pb2_grpc import MatteServiceAsyncStub

SERVICE = "matte"
_ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class MatteService:
    """The service that hosts matting networks."""

    stub: "MatteServiceAsyncStub"

    async def peak_mib(
        self, behind: Sequence[models_pb2.Model], asked: pb.RemoveBackgroundRequest
    ) -> int:
        """Device memory that a removal adds, on whichever of the networks makes it.

        0, as for the largest picture, while the service does not answer: what becomes of requests
        then, the scheduler says. Raises Fault, also for what is no picture.
        """
        pictures = {"image": asked.image.data}
        if asked.backdrop.HasField("image"):
            pictures["backdrop.image"] = asked.backdrop.image.data
        plans = [
            self._planned_mib(model.key, await asyncio.to_thread(probe, data, WIDEST, field), field)
            for field, data in pictures.items()
            for model in behind
        ]
        return max(await asyncio.gather(*plans), default=0)

    async def _planned_mib(self, key: str, size: Probed, field: str) -> int:
        asked = pb.PlanRemovalRequest(model=key, width_px=size.width_px, height_px=size.height_px)
        try:
            plan = await self.stub.PlanRemoval(asked, timeout=_ANSWER_S, metadata=call_metadata())
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error, SERVICE)
            if fault.reason is Reason.SERVICE_UNAVAILABLE:
                return 0
            raise renamed(fault, lambda param: field if param == "image" else param) from None
        return plan.transient_mib
