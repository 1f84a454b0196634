"""Calls of the language model service to the scheduler and to its own engines."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar

import grpc

from chassis.admission import Admission, Turn
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.place import Ask, Waits
from chassis.status import fault_of
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc

if TYPE_CHECKING:
    SchedulerStub = scheduler_pb2_grpc.SchedulerServiceAsyncStub
    Engine = llm_pb2_grpc.LanguageModelServiceAsyncStub
    GenerateCall = grpc.aio.UnaryStreamCall[llm_pb2.GenerateRequest, llm_pb2.GenerateResponse]
    EmbedCall = grpc.aio.UnaryUnaryCall[llm_pb2.EmbedRequest, llm_pb2.EmbedResponse]
    RerankCall = grpc.aio.UnaryUnaryCall[llm_pb2.RerankRequest, llm_pb2.RerankResponse]

_WAITS = Waits(answer_s=10.0, resume_s=10.0, request_s=3600.0)
_COUNT_S = 30.0
_IDLE_ENGINES = 8


class Scheduler:
    """Admission for those who call this service instead of going through the edge."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self._engines = Channels(_IDLE_ENGINES, llm_pb2_grpc.LanguageModelServiceStub)
        self._stub: SchedulerStub = scheduler_pb2_grpc.SchedulerServiceStub(self._channel)
        self._admission: Admission[Engine] = Admission(self._stub, self._engines, _WAITS)

    async def close(self) -> None:
        """Close the channels."""
        await self._engines.close()
        await self._channel.close()

    async def generate(
        self, request: llm_pb2.GenerateRequest
    ) -> AsyncGenerator[llm_pb2.GenerateResponse, None]:
        """Admit the request, then relay its engine's answer. Raises Fault."""

        def start(engine: "Engine", turn: Turn) -> "GenerateCall":
            request.model = turn.model_key
            return engine.Generate(request, timeout=turn.timeout_s, metadata=turn.metadata)

        ask = Ask(request.model, common_pb2.TIER_UNSPECIFIED, request.max_tokens)
        async with aclosing(self._admission.run(ask, start)) as events:
            async for event in events:
                if isinstance(event, llm_pb2.GenerateResponse):
                    yield event

    async def load(self, key: str) -> AsyncGenerator[float, None]:
        """Have the scheduler make a model resident; how far its load is, to the end. Raises Fault.

        Who leaves early ends the wait; a load that has begun goes on.
        """
        call = self._stub.LoadModel(scheduler_pb2.LoadModelRequest(model=key))
        try:
            async for told in call:
                yield told.progress
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "scheduler") from None
        finally:
            call.cancel()

    async def embed(self, request: llm_pb2.EmbedRequest) -> llm_pb2.EmbedResponse:
        """Admit the request, then have an engine answer. Raises Fault."""

        def start(engine: "Engine", turn: Turn) -> "EmbedCall":
            request.model = turn.model_key
            return engine.Embed(request, timeout=turn.timeout_s, metadata=turn.metadata)

        return await self._admission.answer(Ask(request.model, common_pb2.TIER_UNSPECIFIED), start)

    async def rerank(self, request: llm_pb2.RerankRequest) -> llm_pb2.RerankResponse:
        """As `embed`."""

        def start(engine: "Engine", turn: Turn) -> "RerankCall":
            request.model = turn.model_key
            return engine.Rerank(request, timeout=turn.timeout_s, metadata=turn.metadata)

        return await self._admission.answer(Ask(request.model, common_pb2.TIER_UNSPECIFIED), start)


Q = TypeVar("Q")
A = TypeVar("A")

Question = Callable[["Engine"], "Callable[..., grpc.aio.UnaryUnaryCall[Q, A]]"]
"""Which of an engine's calls it is; one that needs no permit."""


async def ask_engine(address: str, question: "Question[Q, A]", request: Q) -> A:
    """The answer of a running engine. Raises Fault."""
    async with open_channel(address) as channel:
        stub: llm_pb2_grpc.LanguageModelServiceAsyncStub = llm_pb2_grpc.LanguageModelServiceStub(
            channel
        )
        try:
            return await question(stub)(request, timeout=_COUNT_S)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "engine") from None
