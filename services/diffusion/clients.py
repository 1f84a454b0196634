"""Calls of the diffusion service to the scheduler and to its own engines."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import grpc

from chassis.admission import Admission, Turn
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.place import Ask, Waits
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2, diffusion_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from services.diffusion.planning import Planned

if TYPE_CHECKING:
    Engine = diffusion_pb2_grpc.DiffusionServiceAsyncStub
    GenerateCall = grpc.aio.UnaryStreamCall[
        diffusion_pb2.GenerateRequest, diffusion_pb2.GenerateResponse
    ]

_WAITS = Waits(answer_s=10.0, resume_s=10.0, request_s=3600.0)
_IDLE_ENGINES = 8


class Scheduler:
    """Admission for those who call this service instead of going through the edge."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self._engines = Channels(_IDLE_ENGINES, diffusion_pb2_grpc.DiffusionServiceStub)
        stub = scheduler_pb2_grpc.SchedulerServiceStub(self._channel)
        self._admission: Admission[Engine] = Admission(stub, self._engines, _WAITS)

    async def close(self) -> None:
        """Close the channels."""
        await self._engines.close()
        await self._channel.close()

    async def generate(
        self, request: diffusion_pb2.GenerateRequest, planned: Planned
    ) -> AsyncGenerator[diffusion_pb2.GenerateResponse, None]:
        """Admit the request with the memory that it takes, then relay its engine's answer. Raises
        Fault.
        """

        def start(engine: "Engine", turn: Turn) -> "GenerateCall":
            turn.lend_to(request)
            return engine.Generate(request, timeout=turn.timeout_s, metadata=turn.metadata)

        ask = Ask(
            request.model,
            common_pb2.TIER_UNSPECIFIED,
            preferred_mib=planned.preferred_mib,
            minimum_mib=planned.minimum_mib,
        )
        async with aclosing(self._admission.run(ask, start)) as events:
            async for event in events:
                if isinstance(event, diffusion_pb2.GenerateResponse):
                    yield event
