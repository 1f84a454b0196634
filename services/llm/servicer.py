"""LanguageModelService of the model service, for people who call it directly.

It offers what its engines offer, for all its models, and obtains the permit itself.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, TypeVar

import grpc

from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.llm.v1 import llm_pb2_grpc as rpc
from hosting.host import ModelHost
from services.llm.clients import Question, Scheduler, ask_engine
from services.llm.counting import Counter
from services.llm.vectors import wrong_kind

Q = TypeVar("Q", pb.CountTokensRequest, pb.TokenizeRequest, pb.DetokenizeRequest)
A = TypeVar("A")
Context = grpc.aio.ServicerContext[Any, Any]


class LanguageModelServicer(rpc.LanguageModelServiceServicer):
    """Admits, then relays."""

    def __init__(self, host: ModelHost, scheduler: Scheduler, counter: Counter) -> None:
        self._host = host
        self._scheduler = scheduler
        self._counter = counter

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        self._check_kind(request.model, "language")
        async with aclosing(self._scheduler.generate(request)) as answer:
            async for message in answer:
                yield message

    async def CountTokens(
        self, request: pb.CountTokensRequest, context: Context
    ) -> pb.CountTokensResponse:
        return await self._without_permit(lambda engine: engine.CountTokens, request)

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        self._check_kind(request.model, "embedding")
        return await self._scheduler.embed(request)

    async def Rerank(self, request: pb.RerankRequest, context: Context) -> pb.RerankResponse:
        self._check_kind(request.model, "reranker")
        return await self._scheduler.rerank(request)

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        return await self._without_permit(lambda engine: engine.Tokenize, request)

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Context
    ) -> pb.DetokenizeResponse:
        return await self._without_permit(lambda engine: engine.Detokenize, request)

    def _check_kind(self, model: str, asked: str) -> None:
        """Before anything is loaded for nothing. Raises Fault MODEL_NOT_FOUND, NOT_IMPLEMENTED."""
        kind = self._host.get(model).spec.kind.name.lower()
        if kind != asked:
            raise wrong_kind(kind, asked)

    async def GetOccupancy(
        self, request: pb.GetOccupancyRequest, context: Context
    ) -> pb.GetOccupancyResponse:
        self._check_kind(request.model, "language")
        address = self._host.get(request.model).address
        if not address:
            return pb.GetOccupancyResponse()
        return await ask_engine(address, lambda engine: engine.GetOccupancy, request)

    async def _without_permit(self, question: "Question[Q, A]", request: Q) -> A:
        """Answered by an engine of the model if there is one, else by its vocabulary."""
        hosted = self._host.get(request.model)
        if hosted.address:
            return await ask_engine(hosted.address, question, request)
        return await self._counter.ask(await self._host.refreshed(request.model), question, request)
