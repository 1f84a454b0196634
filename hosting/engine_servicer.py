"""cohabit.models.v1.EngineService: what an engine process tells those who supervise it."""

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc

from cohabit.models.v1 import models_pb2 as pb
from cohabit.models.v1 import models_pb2_grpc as rpc
from hosting.broadcast import Fallen

if TYPE_CHECKING:
    from hosting.engine_side import EngineProcess

_USAGE_EVERY_S = 2.0


class EngineServicer(rpc.EngineServiceServicer):
    def __init__(self, process: "EngineProcess") -> None:
        self._process = process

    async def WatchEngine(
        self,
        request: pb.WatchEngineRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[pb.WatchEngineResponse]:
        process = self._process
        with process.events.subscribe() as watcher:
            yield pb.WatchEngineResponse(load_progress=process.progress)
            for permit_id, lease_id in process.permits.running.items():
                yield permit_event(permit_id, started=True, transient_lease_id=lease_id)
            yield process.usage_event()  # also says: these were all
            yield process.figures_event()
            if process.ready is not None:
                yield pb.WatchEngineResponse(ready=process.ready)
            usage_due = time.monotonic() + _USAGE_EVERY_S
            while True:
                try:
                    event = await watcher.next(max(0.0, usage_due - time.monotonic()))
                except Fallen:
                    return  # the parent comes back, and is told afresh what runs
                if event is None:
                    event = process.usage_event()
                    usage_due = time.monotonic() + _USAGE_EVERY_S
                yield event

    async def RevokePermit(
        self,
        request: pb.RevokePermitRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> pb.RevokePermitResponse:
        running = await self._process.permits.revoke(
            request.permit_id, only_if_not_started=request.only_if_not_started
        )
        return pb.RevokePermitResponse(running=running)

    async def DrainEngine(
        self,
        request: pb.DrainEngineRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> pb.DrainEngineResponse:
        running = await self._process.permits.drain(request.within_ms / 1000, force=request.force)
        figures = self._process.figures_event().figures
        return pb.DrainEngineResponse(running=running, figures=figures)


def permit_event(
    permit_id: str, *, started: bool, transient_lease_id: str = ""
) -> pb.WatchEngineResponse:
    """That the work of a permit began or ended."""
    phase = pb.PermitChange.PHASE_STARTED if started else pb.PermitChange.PHASE_ENDED
    change = pb.PermitChange(
        permit_id=permit_id, phase=phase, transient_lease_id=transient_lease_id if started else ""
    )
    return pb.WatchEngineResponse(permit=change)
