"""LanguageModelService of one engine process: one model, and a permit for every request.

What a model of another kind would do is refused here, and by the model service before it.
"""

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
from hosting.traced import generated
from services.llm.engine import Engine
from services.llm.lexicon import Lexicon
from services.llm.values import Usage
from services.llm.vector_wire import embed_response, rerank_response, texts_of
from services.llm.vectors import VectorEngine, VectorKind, wrong_kind
from services.llm.wire import params_of, prompt_of
from services.llm.wire_answer import occupancy_response, response_of

Context = grpc.aio.ServicerContext[Any, Any]


class _Tokens(rpc.LanguageModelServiceServicer):
    """Tokens of the model `key`; `lexicon` may take a while when it is first asked for."""

    def __init__(self, key: str, lexicon: Callable[[], Lexicon]) -> None:
        self._key, self._lexicon = key, lexicon

    async def CountTokens(
        self, request: pb.CountTokensRequest, context: Context
    ) -> pb.CountTokensResponse:
        self._check_model(request.model)
        return await asyncio.to_thread(lambda: self._lexicon().count(request))

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        self._check_model(request.model)
        return await asyncio.to_thread(lambda: self._lexicon().tokenize(request))

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Context
    ) -> pb.DetokenizeResponse:
        self._check_model(request.model)
        return await asyncio.to_thread(lambda: self._lexicon().detokenize(request))

    async def GetOccupancy(
        self, request: pb.GetOccupancyRequest, context: Context
    ) -> pb.GetOccupancyResponse:
        raise not_implemented("Telling of a KV cache where there is none")

    def _check_model(self, asked: str) -> None:
        if asked != self._key:
            raise Fault(
                Reason.MODEL_NOT_FOUND,
                f"This engine runs '{self._key}', not '{asked}'; ask for that.",
            )


class VocabularyServicer(_Tokens):
    """wire ↔ a vocabulary without its model."""

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        raise not_implemented("Generating without the weights of a model")
        yield

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        raise not_implemented("Embedding without the weights of a model")

    async def Rerank(self, request: pb.RerankRequest, context: Context) -> pb.RerankResponse:
        raise not_implemented("Reranking without the weights of a model")


class EngineServicer(_Tokens):
    """wire ↔ Engine."""

    def __init__(
        self, process: EngineProcess, engine: Engine, lexicon: Callable[[], Lexicon]
    ) -> None:
        super().__init__(process.birth.key, lexicon)
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
                    response = response_of(chunk)
                    if chunk.finish is not None:
                        self._count(chunk.choice, chunk.finish.usage)
                        generated(response.finish)
                    yield response

    def _count(self, choice: int, usage: Usage) -> None:
        self._process.count(completion_tokens=usage.completion_tokens)
        if choice == 0:  # all choices answer one prompt
            self._process.count(
                prompt_tokens=usage.prompt_tokens,
                cached_prompt_tokens=usage.cached_prompt_tokens,
                prefix_hits=int(usage.cached_prompt_tokens > 0),
            )

    async def GetOccupancy(
        self, request: pb.GetOccupancyRequest, context: Context
    ) -> pb.GetOccupancyResponse:
        self._check_model(request.model)
        return occupancy_response(self._engine.occupancy(), self._engine.holdings())

    async def CountTokens(
        self, request: pb.CountTokensRequest, context: Context
    ) -> pb.CountTokensResponse:
        self._check_model(request.model)
        tokens = await asyncio.to_thread(self._engine.count_tokens, prompt_of(request))
        return pb.CountTokensResponse(
            tokens=tokens, context_tokens=self._engine.facts.context_tokens
        )

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        raise wrong_kind("language", VectorKind.EMBEDDING)

    async def Rerank(self, request: pb.RerankRequest, context: Context) -> pb.RerankResponse:
        raise wrong_kind("language", VectorKind.RERANKER)


class VectorServicer(_Tokens):
    """wire ↔ VectorEngine."""

    def __init__(
        self,
        process: EngineProcess,
        engine: VectorEngine,
        kind: VectorKind,
        lexicon: Callable[[], Lexicon],
    ) -> None:
        super().__init__(process.birth.key, lexicon)
        self._process, self._engine, self._kind = process, engine, kind

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        raise wrong_kind(self._kind, "language")
        yield

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        async with self._process.permits.use(permit_of(context)):
            self._check_model(request.model)
            await context.send_initial_metadata(((TAKEN_IN, "1"),))
            embedded = await self._engine.embed(texts_of(request), request.dimensions)
            self._process.count(prompt_tokens=embedded.prompt_tokens)
            return embed_response(embedded)

    async def Rerank(self, request: pb.RerankRequest, context: Context) -> pb.RerankResponse:
        async with self._process.permits.use(permit_of(context)):
            self._check_model(request.model)
            await context.send_initial_metadata(((TAKEN_IN, "1"),))
            ranked = await self._engine.rerank(
                request.query, list(request.documents), request.top_n
            )
            self._process.count(prompt_tokens=ranked.prompt_tokens)
            return rerank_response(ranked)
