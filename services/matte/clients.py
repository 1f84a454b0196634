"""Calls of the matting service to the scheduler and to its own engines."""

from typing import TYPE_CHECKING

import grpc

from chassis.admission import Admission, Turn
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.place import Ask, Waits
from cohabit.common.v1 import common_pb2
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.matte.v1 import matte_pb2_grpc as rpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc

if TYPE_CHECKING:
    Engine = rpc.MatteServiceAsyncStub
    RemovalCall = grpc.aio.UnaryUnaryCall[pb.RemoveBackgroundRequest, pb.RemoveBackgroundResponse]
    EstimationCall = grpc.aio.UnaryUnaryCall[
        pb.EstimateForegroundRequest, pb.EstimateForegroundResponse
    ]

_WAITS = Waits(answer_s=10.0, resume_s=10.0, request_s=3600.0)
_IDLE_ENGINES = 8


class Scheduler:
    """Admission for those who call this service instead of going through the edge."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self._engines = Channels(_IDLE_ENGINES, rpc.MatteServiceStub)
        stub: scheduler_pb2_grpc.SchedulerServiceAsyncStub = (
            scheduler_pb2_grpc.SchedulerServiceStub(self._channel)
        )
        self._admission: Admission[Engine] = Admission(stub, self._engines, _WAITS)

    async def close(self) -> None:
        """Close the channels."""
        await self._engines.close()
        await self._channel.close()

    async def remove(
        self, request: pb.RemoveBackgroundRequest, peak_mib: int
    ) -> pb.RemoveBackgroundResponse:
        """Admit the request, which adds `peak_mib`, then have an engine answer. Raises Fault."""

        def start(engine: "Engine", turn: Turn) -> "RemovalCall":
            turn.lend_to(request)
            return engine.RemoveBackground(request, timeout=turn.timeout_s, metadata=turn.metadata)

        return await self._admission.answer(_ask(request.model, peak_mib), start)

    async def estimate(
        self, request: pb.EstimateForegroundRequest, peak_mib: int
    ) -> pb.EstimateForegroundResponse:
        """As `remove`."""

        def start(engine: "Engine", turn: Turn) -> "EstimationCall":
            turn.lend_to(request)
            return engine.EstimateForeground(
                request, timeout=turn.timeout_s, metadata=turn.metadata
            )

        return await self._admission.answer(_ask(request.model, peak_mib), start)


def _ask(model: str, peak_mib: int) -> Ask:
    return Ask(model, common_pb2.TIER_UNSPECIFIED, preferred_mib=peak_mib)
