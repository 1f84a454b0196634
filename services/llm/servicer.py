"""LanguageModelService of the model service, for people who call it directly.

It offers what its engines offer, for all its models, and obtains the permit itself.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from chassis.errors import not_implemented
from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.llm.v1 import llm_pb2_grpc as rpc
from hosting.host import ModelHost
from services.llm.clients import Scheduler, count_tokens
from services.llm.counting import Counter

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
        self._host.get(request.model)
        async with aclosing(self._scheduler.generate(request)) as answer:
            async for message in answer:
                yield message

    async def CountTokens(
        self, request: pb.CountTokensRequest, context: Context
    ) -> pb.CountTokensResponse:
        hosted = self._host.get(request.model)
        if hosted.address:
            return await count_tokens(hosted.address, request)
        return await self._counter.count(await self._host.refreshed(request.model), request)

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        raise not_implemented("LanguageModelService.Embed")

    async def Rerank(self, request: pb.RerankRequest, context: Context) -> pb.RerankResponse:
        raise not_implemented("LanguageModelService.Rerank")

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        raise not_implemented("LanguageModelService.Tokenize")

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Context
    ) -> pb.DetokenizeResponse:
        raise not_implemented("LanguageModelService.Detokenize")
