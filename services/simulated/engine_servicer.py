"""What one engine process serves: runs of any model, and answers of a language model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from chassis import log
from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason, not_implemented
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2 as pb
from cohabit.simulated.v1 import simulated_pb2_grpc as rpc
from hosting.engine_side import EngineProcess, permit_of
from hosting.traced import generated
from services.simulated.engine import Prefilled, SimulatedEngine
from services.simulated.profile import Profile
from services.simulated.wire import Times, check_answers, counted, finish, planned

Context = grpc.aio.ServicerContext[Any, Any]

_TAKEN_IN = ((TAKEN_IN, "1"),)


class RunServicer(rpc.SimulatedServiceServicer):
    """wire ↔ SimulatedEngine.run"""

    def __init__(self, process: EngineProcess, engine: SimulatedEngine) -> None:
        self._process = process
        self._engine = engine

    async def Run(self, request: pb.RunRequest, context: Context) -> AsyncIterator[pb.RunResponse]:
        async with self._process.permits.use(permit_of(context), request.transient_lease_id):
            _check_model(self._process, request.model)
            await _take_in(context)
            began = asyncio.get_running_loop().time()
            transient_mib = request.transient_mib or self._engine.profile.peak_mib
            work_s = _work_s(request, self._engine.profile)
            async with aclosing(self._engine.run(work_s, transient_mib)) as work:
                async for share in work:
                    self._process.report_usage()
                    yield pb.RunResponse(progress=share)
            ran_ms = round(1000 * (asyncio.get_running_loop().time() - began))
            done = pb.RunResponse.Done(
                model=request.model, ran_ms=ran_ms, transient_mib=transient_mib
            )
            yield pb.RunResponse(done=done)


class AnswerServicer(llm_pb2_grpc.LanguageModelServiceServicer):
    """wire ↔ SimulatedEngine.generate"""

    def __init__(self, process: EngineProcess, engine: SimulatedEngine) -> None:
        self._process = process
        self._engine = engine

    async def Generate(
        self, request: llm_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[llm_pb2.GenerateResponse]:
        async with self._process.permits.use(permit_of(context)):
            self._check(request.model)
            await _take_in(context)
            loop = asyncio.get_running_loop()
            arrived_s = first_s = loop.time()
            prompt_tokens = await counted(request)
            plan = planned(request, prompt_tokens, self._engine.profile)
            said = 0
            async with aclosing(self._engine.generate(prompt_tokens, plan)) as answer:
                async for piece in answer:
                    if isinstance(piece, Prefilled):
                        yield _prefilled(piece.tokens, prompt_tokens)
                        continue
                    first_s = first_s if said else loop.time()
                    said += piece.tokens
                    yield llm_pb2.GenerateResponse(text=piece.text, tokens=piece.tokens)
            times = Times(arrived_s, first_s if said else loop.time(), loop.time())
            end = finish(plan, prompt_tokens, times)
            self._process.count(
                prompt_tokens=prompt_tokens, completion_tokens=end.usage.completion_tokens
            )
            generated(end)
            yield llm_pb2.GenerateResponse(finish=end)

    async def CountTokens(
        self, request: llm_pb2.CountTokensRequest, context: Context
    ) -> llm_pb2.CountTokensResponse:
        self._check(request.model)
        return llm_pb2.CountTokensResponse(
            tokens=await counted(request), context_tokens=self._engine.profile.context_tokens
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

    def _check(self, asked: str) -> None:
        _check_model(self._process, asked)
        check_answers(asked, self._engine.profile)


async def _take_in(context: Context) -> None:
    """From here on the request runs here, or nowhere."""
    await context.send_initial_metadata(_TAKEN_IN)
    log.get().debug("taken in")


def _check_model(process: EngineProcess, asked: str) -> None:
    mine = process.birth.key
    if asked != mine:
        raise Fault(
            Reason.MODEL_NOT_FOUND, f"This engine runs '{mine}', not '{asked}'; ask for that."
        )


def _work_s(request: pb.RunRequest, profile: Profile) -> float:
    if not request.work_ms:
        return profile.work_s
    return request.work_ms / 1000 * profile.time_scale


def _prefilled(done_tokens: int, total_tokens: int) -> llm_pb2.GenerateResponse:
    return llm_pb2.GenerateResponse(
        prefill=llm_pb2.PrefillProgress(done_tokens=done_tokens, total_tokens=total_tokens)
    )
