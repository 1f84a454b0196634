"""An engine process without a model, for tests of hosting: its birth says how it behaves.

`engine` keys: `steps` and `step_ms` (a load with progress), `fail` (a Reason), `exit` (a status),
`kill` (SIGKILL itself during the load), `silent` (never binds), `say` (a line on standard error,
and one in the log), `resident_mib` (what it claims to hold; 100 unless told),
`guesses` (it claims to guess ahead, and one token more each time that it is asked),
`fails_with_file` and `slow_with_file` (a load fails, or takes for ever, while the file is there).
Generate echoes the prompt, and counts its characters as tokens; the prompt "hold" runs until it is
cancelled, "burst" says more than a watcher may have waiting, so that the end of its permit goes
unheard, "flood" never ends, and
"take LEASE MIB" runs until it is cancelled, claims so much transient memory, and names the lease
for it. "stuck LEASE MIB" is the same, but cannot be cancelled: the process renews instead.
"announce FILE" says that it renews, and does when the file is gone; "vanish" renews unannounced.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import grpc

from chassis import log
from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason, not_implemented
from chassis.server import service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from hosting.engine_side import (
    RENEW_STATUS,
    RENEWS_LINE,
    EngineProcess,
    permit_of,
    run_engine,
)

Context = grpc.aio.ServicerContext[Any, Any]


class Echo(llm_pb2_grpc.LanguageModelServiceServicer):
    def __init__(self, process: EngineProcess) -> None:
        self._process = process
        self._resident_mib = int(process.birth.engine.get("resident_mib", 100))
        self._transient_mib = 0

    async def Generate(
        self, request: llm_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[llm_pb2.GenerateResponse]:
        word, *rest = request.prompt.split()
        lease_id, mib = (rest[0], int(rest[1])) if len(rest) == 2 else ("", 0)
        async with self._process.permits.use(permit_of(context), lease_id):
            await context.send_initial_metadata(((TAKEN_IN, "1"),))
            with self._taking(mib), self._unless_stuck(word):
                self._process.count(completion_tokens=len(request.prompt), nobodys_name=1)
                yield llm_pb2.GenerateResponse(text=request.prompt)
                if word in ("hold", "take", "stuck"):
                    await asyncio.Event().wait()
                if word in ("announce", "vanish"):
                    await self._renew(word, rest)
                while word == "flood":
                    yield llm_pb2.GenerateResponse(text="x" * 10_000)
                if word == "burst":
                    for _ in range(5000):
                        self._process.report_progress(1.0)

    @contextmanager
    def _unless_stuck(self, word: str) -> Iterator[None]:
        try:
            yield
        except BaseException:  # cancelled while it waits, or closed while it yields
            if word == "stuck":
                self._process.renew()
            raise

    async def _renew(self, word: str, rest: list[str]) -> None:
        if word == "announce":
            sys.stderr.write(f"{RENEWS_LINE}\n")
            while _is_there(rest[0]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        os._exit(RENEW_STATUS)

    @contextmanager
    def _taking(self, mib: int) -> Iterator[None]:
        self._transient_mib += mib
        try:
            yield
        finally:
            self._transient_mib -= mib

    def usage(self) -> tuple[int, int]:
        return self._resident_mib + self._transient_mib, self._transient_mib

    async def CountTokens(
        self, request: llm_pb2.CountTokensRequest, context: Context
    ) -> llm_pb2.CountTokensResponse:
        raise not_implemented("Counting")

    async def Embed(self, request: llm_pb2.EmbedRequest, context: Context) -> llm_pb2.EmbedResponse:
        raise not_implemented("Embedding")

    async def Rerank(
        self, request: llm_pb2.RerankRequest, context: Context
    ) -> llm_pb2.RerankResponse:
        raise not_implemented("Reranking")

    async def Tokenize(
        self, request: llm_pb2.TokenizeRequest, context: Context
    ) -> llm_pb2.TokenizeResponse:
        raise not_implemented("Tokenising")

    async def GetOccupancy(
        self, request: llm_pb2.GetOccupancyRequest, context: Context
    ) -> llm_pb2.GetOccupancyResponse:
        raise not_implemented("Telling what runs")

    async def Detokenize(
        self, request: llm_pb2.DetokenizeRequest, context: Context
    ) -> llm_pb2.DetokenizeResponse:
        raise not_implemented("Detokenising")


async def load(process: EngineProcess) -> models_pb2.EngineReady:
    engine = process.birth.engine
    if engine.get("silent"):
        await asyncio.Event().wait()
    if say := engine.get("say"):
        sys.stderr.write(f"{say}\n")
        log.get().info(say)
    echo = Echo(process)
    process.usage = echo.usage
    process.held = lambda: {"kv_cells": 7, "nobodys_name": 1}
    if engine.get("guesses"):
        process.speculation = _more_each_time()
    log.get().info("extras", there=list(process.birth.extras))
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(echo, process.server.grpc)
    await process.server.start(process.birth.address)
    steps = int(engine.get("steps", 0))
    for done in range(steps):
        process.report_progress(done / steps)
        await asyncio.sleep(engine.get("step_ms", 0) / 1000)
    while _is_there(engine.get("slow_with_file")):
        process.report_progress(0.5)
        await asyncio.sleep(0.02)
    if _is_there(engine.get("fails_with_file")):
        raise Fault(Reason.MODEL_FAILED, "The toy found its file.")
    if engine.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in engine:
        os._exit(engine["exit"])
    if reason := engine.get("fail"):
        raise Fault(Reason(reason), "The toy was told to fail.")
    return models_pb2.EngineReady(
        places=int(engine.get("places", 2)),
        capabilities=models_pb2.Capabilities(context_tokens=77, input_modalities=["text"]),
    )


def _more_each_time() -> Callable[[], models_pb2.Speculation]:
    asked = count(1)

    def told() -> models_pb2.Speculation:
        times = next(asked)
        return models_pb2.Speculation(
            drafted_tokens=3 * times, accepted_tokens=2 * times, saved_calls=times
        )

    return told


def _is_there(path: str | None) -> bool:
    return path is not None and Path(path).exists()


if __name__ == "__main__":
    run_engine((service_name(llm_pb2, "LanguageModelService"),), load)
