"""LanguageModelService of one engine process: one model, and a permit for every request."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc

from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason, not_implemented
from cohabit.llm.v1 import llm_pb2 as pb
from cohabit.llm.v1 import llm_pb2_grpc as rpc
from hosting.engine_side import EngineProcess, permit_of
from services.llm.engine import Engine
from services.llm.values import Prompt
from services.llm.wire import params_of, prompt_of
from services.llm.wire_answer import response_of

Context = grpc.aio.ServicerContext[Any, Any]


class _NoVectors(rpc.LanguageModelServiceServicer):
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


class VocabularyServicer(_NoVectors):
    """wire ↔ a vocabulary without its model."""

    def __init__(self, count_tokens: Callable[[Prompt], int], context_tokens: int) -> None:
        self._count_tokens = count_tokens
        self._context_tokens = context_tokens

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        raise not_implemented("Generating without the weights of a model")
        yield

    async def CountTokens(
        self, request: pb.CountTokensRequest, context: Context
    ) -> pb.CountTokensResponse:
        tokens = await asyncio.to_thread(self._count_tokens, prompt_of(request))
        return pb.CountTokensResponse(tokens=tokens, context_tokens=self._context_tokens)


class EngineServicer(_NoVectors):
    """wire ↔ Engine."""

    def __init__(self, process: EngineProcess, engine: Engine) -> None:
        self._process = process
        self._engine = engine

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        async with self._process.permits.use(permit_of(context)):
            self._check_model(request.model)
            await context.send_initial_metadata(((TAKEN_IN, "1"),))
            answer = self._engine.generate(prompt_of(request), params_of(request))
            async with aclosing(answer) as chunks:
                async for chunk in chunks:
                    yield response_of(chunk)

    async def CountTokens(
        self, request: pb.CountTokensRequest, context: Context
    ) -> pb.CountTokensResponse:
        self._check_model(request.model)
        tokens = await asyncio.to_thread(self._engine.count_tokens, prompt_of(request))
        return pb.CountTokensResponse(
            tokens=tokens, context_tokens=self._engine.facts.context_tokens
        )

    def _check_model(self, asked: str) -> None:
        mine = self._process.birth.key
        if asked != mine:
            raise Fault(
                Reason.MODEL_NOT_FOUND, f"This engine runs '{mine}', not '{asked}'; ask for that."
            )
