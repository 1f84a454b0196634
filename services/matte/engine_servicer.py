"""MatteService of one engine process: one network, and a permit for every request."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason, not_implemented
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.matte.v1 import matte_pb2_grpc as rpc
from hosting.engine_side import EngineProcess, permit_of
from hosting.traced import took
from imaging.values import Encoding
from services.matte.pipeline import Pipeline
from services.matte.wire import estimated_message, estimation_of, removal_of, removed_message

Context = grpc.aio.ServicerContext[Any, Any]


class EngineServicer(rpc.MatteServiceServicer):
    """wire ↔ Pipeline."""

    def __init__(self, process: EngineProcess, encoding: Encoding) -> None:
        self._process, self._encoding = process, encoding
        self._pipeline: Pipeline | None = None
        self._device = ""

    def serve(self, pipeline: Pipeline, device: str) -> None:
        """From now on there is a network, on `device`."""
        self._pipeline, self._device = pipeline, device

    async def RemoveBackground(
        self, request: pb.RemoveBackgroundRequest, context: Context
    ) -> pb.RemoveBackgroundResponse:
        async with self._process.permits.use(permit_of(context), request.transient_lease_id):
            pipeline = self._of(request.model)
            removal = removal_of(request, self._encoding)
            await context.send_initial_metadata(((TAKEN_IN, "1"),))
            removed, times = await pipeline.remove(removal)
            self._process.count(mattes=1)
            message = removed_message(removed, times, self._device)
            took(message.timings)
            return message

    async def PlanRemoval(
        self, request: pb.PlanRemovalRequest, context: Context
    ) -> pb.PlanRemovalResponse:
        raise _not_here("plans")

    async def EstimateForeground(
        self, request: pb.EstimateForegroundRequest, context: Context
    ) -> pb.EstimateForegroundResponse:
        async with self._process.permits.use(permit_of(context), request.transient_lease_id):
            pipeline = self._of(request.model)
            asked = estimation_of(request, self._encoding)
            await context.send_initial_metadata(((TAKEN_IN, "1"),))
            estimated, times = await pipeline.estimate(asked)
            self._process.count(foregrounds=1)
            return estimated_message(estimated, times)

    async def Composite(
        self, request: pb.CompositeRequest, context: Context
    ) -> pb.CompositeResponse:
        raise _not_here("composes")

    async def MatteVideo(
        self, request_iterator: AsyncIterator[pb.MatteVideoRequest], context: Context
    ) -> AsyncIterator[pb.MatteVideoResponse]:
        raise not_implemented("Matting of videos")
        yield

    def _of(self, asked: str) -> Pipeline:
        mine = self._process.birth.key
        if asked != mine:
            raise Fault(
                Reason.MODEL_NOT_FOUND, f"This engine runs '{mine}', not '{asked}'; ask for that."
            )
        if self._pipeline is None:
            message = f"'{mine}' is still being loaded; try again shortly."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        return self._pipeline


def _not_here(does: str) -> Fault:
    message = f"An engine {does} nothing; ask the matting service itself."
    return Fault(Reason.NOT_IMPLEMENTED, message)
