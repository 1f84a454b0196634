"""Calls of the simulated service to the scheduler and to its own engines."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import grpc

from chassis.admission import Admission, Turn
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.place import Ask, Waits
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2, simulated_pb2_grpc

if TYPE_CHECKING:
    Runner = simulated_pb2_grpc.SimulatedServiceAsyncStub
    Answerer = llm_pb2_grpc.LanguageModelServiceAsyncStub
    RunCall = grpc.aio.UnaryStreamCall[simulated_pb2.RunRequest, simulated_pb2.RunResponse]
    GenerateCall = grpc.aio.UnaryStreamCall[llm_pb2.GenerateRequest, llm_pb2.GenerateResponse]

_WAITS = Waits(answer_s=10.0, resume_s=10.0, request_s=3600.0)
_IDLE_ENGINES = 8


class Scheduler:
    """Admission for those who call this service instead of going through the edge."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self._runners = Channels(_IDLE_ENGINES, simulated_pb2_grpc.SimulatedServiceStub)
        self._answerers = Channels(_IDLE_ENGINES, llm_pb2_grpc.LanguageModelServiceStub)
        stub = scheduler_pb2_grpc.SchedulerServiceStub(self._channel)
        self._runs: Admission[Runner] = Admission(stub, self._runners, _WAITS)
        self._answers: Admission[Answerer] = Admission(stub, self._answerers, _WAITS)

    async def close(self) -> None:
        """Close the channels."""
        await self._runners.close()
        await self._answerers.close()
        await self._channel.close()

    async def run(
        self, request: simulated_pb2.RunRequest
    ) -> AsyncGenerator[simulated_pb2.RunResponse, None]:
        """Admit the request, then relay its engine's progress. Raises Fault."""

        def start(engine: "Runner", turn: Turn) -> "RunCall":
            lent = simulated_pb2.RunRequest(
                model=turn.model_key,
                work_ms=request.work_ms,
                transient_lease_id=turn.transient_lease_id,
                transient_mib=turn.transient_mib,
            )
            return engine.Run(lent, timeout=turn.timeout_s, metadata=turn.metadata)

        ask = Ask(request.model, common_pb2.TIER_UNSPECIFIED, preferred_mib=request.transient_mib)
        async with aclosing(self._runs.run(ask, start)) as events:
            async for event in events:
                if isinstance(event, simulated_pb2.RunResponse):
                    yield event

    async def generate(
        self, request: llm_pb2.GenerateRequest
    ) -> AsyncGenerator[llm_pb2.GenerateResponse, None]:
        """Admit the request, then relay its engine's answer. Raises Fault."""

        def start(engine: "Answerer", turn: Turn) -> "GenerateCall":
            request.model = turn.model_key
            return engine.Generate(request, timeout=turn.timeout_s, metadata=turn.metadata)

        ask = Ask(request.model, common_pb2.TIER_UNSPECIFIED, request.max_tokens)
        async with aclosing(self._answers.run(ask, start)) as events:
            async for event in events:
                if isinstance(event, llm_pb2.GenerateResponse):
                    yield event
