"""What the service itself serves, for people who call it directly.

It offers what its engines offer, for all its models, and obtains the permit itself. Counting needs
no engine: the rule is the same for all models.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from chassis.errors import not_implemented
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2 as pb
from cohabit.simulated.v1 import simulated_pb2_grpc as rpc
from hosting.host import ModelHost
from services.simulated.clients import Scheduler
from services.simulated.profile import Profile
from services.simulated.wire import check_answers, counted

Context = grpc.aio.ServicerContext[Any, Any]


class Profiles:
    """The models of the service, by key."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host

    def get(self, key: str) -> Profile:
        """Raises Fault MODEL_NOT_FOUND."""
        return Profile(**self._host.get(key).spec.engine["profile"])

    def language(self, key: str) -> Profile:
        """As `get`. Raises Fault INVALID_REQUEST for a model that is no language model."""
        profile = self.get(key)
        check_answers(key, profile)
        return profile


class RunServicer(rpc.SimulatedServiceServicer):
    """Admits, then relays."""

    def __init__(self, profiles: Profiles, scheduler: Scheduler) -> None:
        self._profiles = profiles
        self._scheduler = scheduler

    async def Run(self, request: pb.RunRequest, context: Context) -> AsyncIterator[pb.RunResponse]:
        self._profiles.get(request.model)
        async with aclosing(self._scheduler.run(request)) as work:
            async for message in work:
                yield message


class AnswerServicer(llm_pb2_grpc.LanguageModelServiceServicer):
    """Admits, then relays; counts by itself."""

    def __init__(self, profiles: Profiles, scheduler: Scheduler) -> None:
        self._profiles = profiles
        self._scheduler = scheduler

    async def Generate(
        self, request: llm_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[llm_pb2.GenerateResponse]:
        self._profiles.language(request.model)
        async with aclosing(self._scheduler.generate(request)) as answer:
            async for message in answer:
                yield message

    async def CountTokens(
        self, request: llm_pb2.CountTokensRequest, context: Context
    ) -> llm_pb2.CountTokensResponse:
        profile = self._profiles.language(request.model)
        return llm_pb2.CountTokensResponse(
            tokens=await counted(request), context_tokens=profile.context_tokens
        )

    async def Embed(self, request: llm_pb2.EmbedRequest, context: Context) -> llm_pb2.EmbedResponse:
        raise not_implemented("Simulated embeddings")

    async def Rerank(
        self, request: llm_pb2.RerankRequest, context: Context
    ) -> llm_pb2.RerankResponse:
        raise not_implemented("Simulated reranking")

    async def Tokenize(
        self, request: llm_pb2.TokenizeRequest, context: Context
    ) -> llm_pb2.TokenizeResponse:
        raise not_implemented("A simulated tokeniser")

    async def GetOccupancy(
        self, request: llm_pb2.GetOccupancyRequest, context: Context
    ) -> llm_pb2.GetOccupancyResponse:
        raise not_implemented("A simulated KV cache")

    async def Detokenize(
        self, request: llm_pb2.DetokenizeRequest, context: Context
    ) -> llm_pb2.DetokenizeResponse:
        raise not_implemented("A simulated tokeniser")
