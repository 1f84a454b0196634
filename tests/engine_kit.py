"""What tests of the language engine share: short prompts, readers of answers, deadlines."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from chassis.errors import Fault
from services.llm.engine import EngineSpec
from services.llm.engine_llama import LlamaEngine
from services.llm.values import BarePrompt, Chunk, Finish, GenerateParams, SamplingParams

GREEDY = SamplingParams(temperature=0)
PROMPT = BarePrompt("please write a short story about the tide")
DEADLINE_S = 30.0
FREED_WITHIN_S = 0.1


def loaded(spec: EngineSpec) -> LlamaEngine:
    engine = LlamaEngine(spec)
    engine.load(lambda _: None)
    return engine


def answer_of(
    tokens: int,
    *,
    sampling: SamplingParams = GREEDY,
    stop: tuple[str, ...] = (),
    ignore_eos: bool = True,
) -> GenerateParams:
    return GenerateParams(tokens, stop, sampling, ignore_eos)


async def collect(chunks: AsyncIterator[Chunk]) -> tuple[str, Finish, int]:
    text, tokens = "", 0
    async with asyncio.timeout(DEADLINE_S):
        async for chunk in chunks:
            text, tokens = text + chunk.text, tokens + chunk.tokens
            if chunk.finish is not None:
                return text, chunk.finish, tokens
    raise AssertionError("the answer ended without a finish")


async def until(condition: Callable[[], bool]) -> float:
    """Seconds until `condition` holds."""
    began = time.perf_counter()
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  the engine's own thread makes it true
            await asyncio.sleep(0.001)
    return time.perf_counter() - began


async def first_text(chunks: AsyncIterator[Chunk]) -> Chunk:
    async for chunk in chunks:
        if chunk.tokens:
            return chunk
    raise AssertionError("the answer has no text")


async def refused(chunks: AsyncIterator[Chunk]) -> Fault:
    with pytest.raises(Fault) as caught:
        await collect(chunks)
    return caught.value
