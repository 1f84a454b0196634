"""Greedy answers of the real model, computed alone, in a batch, from a cached prefix, parked and
resumed, and with guessing ahead.

Sums depend on the order of their terms in the last bit. With quantised weights, whose products
round their inputs to 8 bits, that moves logits by tenths; but a sequence's cells keep their order,
so that nothing is summed in another one, and answers are the same bit for bit. With weights of 16
bits the native products of one row and of several differ in the last bit themselves: that moves
logits by thousandths, and answers part only where two tokens are almost equally likely.

COHABIT_DEEP=1 asks 200 prompts instead of a few.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.llm.engine import EngineSpec
from services.llm.engine_llama import LlamaEngine
from services.llm.values import ChatMessage, Conversation, Prompt, Role
from tests.engine_kit import loaded
from tests.greedy import Greedy, greedy, parted_at
from tests.half_precision import make_half_precision
from tests.integration.house import REAL_MODEL

pytestmark = [pytest.mark.model, pytest.mark.timeout(3600)]

DEEP = os.environ.get("COHABIT_DEEP") == "1"
PROMPTS = 200 if DEEP else 16
TOKENS = 24
SIDE_BY_SIDE = 8
_MOST_ROUNDS = 5
SUBJECTS = (
    "the sea in winter", "how bread is baked", "a lighthouse", "the moon", "a journey by train",
    "old bridges", "why leaves fall", "a letter to a friend", "the city of Lisbon", "a lost key",
)  # fmt: skip
ASKED = ("Tell me about", "Write a poem about", "Explain to a child", "List five facts about")


def prompt(number: int) -> Prompt:
    subject = SUBJECTS[number % len(SUBJECTS)]
    text = f"{ASKED[number // len(SUBJECTS) % len(ASKED)]} {subject}, please. Number {number}."
    return Conversation((ChatMessage(Role.USER, text * (1 + number % 3)),))


@asynccontextmanager
async def engine(path: Path, **fields: Any) -> AsyncIterator[LlamaEngine]:
    made = loaded(EngineSpec(path, context_tokens=512, threads=1, **fields))
    try:
        yield made
    finally:
        made.close()


async def alone(path: Path) -> list[Greedy]:
    async with engine(path, prefix_cache_mib=0, idle_cache_tokens=0) as made:
        return await one_by_one(made)


async def batched(path: Path) -> list[Greedy]:
    bounds = {"prefix_cache_mib": 0, "idle_cache_tokens": 0}
    async with engine(path, places=SIDE_BY_SIDE, **bounds) as made:
        return await together(made)


async def cached(path: Path) -> list[Greedy]:
    async with engine(path, idle_cache_tokens=0, prefix_cache_mib=2048) as made:
        await one_by_one(made)
        again = await one_by_one(made)
    for answer in again:
        assert answer.usage.cached_prompt_tokens == answer.usage.prompt_tokens - 1
    return again


async def guessed(path: Path) -> list[Greedy]:
    async with engine(path, speculation="lookup", draft_tokens=4, idle_cache_tokens=0) as made:
        return await one_by_one(made)


async def parked(path: Path) -> list[Greedy]:
    async with engine(path, places=SIDE_BY_SIDE, cache_tokens=512, idle_cache_tokens=0) as made:
        assert made._loop is not None
        count, park = 0, made._loop._cache.park

        def counted(job: Any) -> None:
            nonlocal count
            count += 1
            park(job)

        made._loop._cache.park = counted  # type: ignore[method-assign]
        answers: list[Greedy] = []
        for _ in range(_MOST_ROUNDS):
            answers = await together(made)
            if count:  # how full the cache gets depends on when each of them came
                break
    assert count > 0, "the cache was never full: this shows nothing"
    return answers


async def one_by_one(made: LlamaEngine) -> list[Greedy]:
    return [await greedy(made, prompt(i), TOKENS) for i in range(PROMPTS)]


async def together(made: LlamaEngine) -> list[Greedy]:
    answers: list[Greedy] = []
    for first in range(0, PROMPTS, SIDE_BY_SIDE):
        batch = range(first, min(PROMPTS, first + SIDE_BY_SIDE))
        answers += await asyncio.gather(*(greedy(made, prompt(i), TOKENS) for i in batch))
    return answers


def parted(way: str, mine: Sequence[Greedy], other: Sequence[Greedy]) -> int:
    """How many answers part; fails where they part at tokens that are not nearly equal."""
    places = [parted_at(a, b) for a, b in zip(mine, other, strict=True)]
    count = sum(at is not None for at in places)
    sys.stdout.write(f"{way}: {count} of {len(places)} answers part\n")
    return count


async def test_answers_part_only_where_two_tokens_are_nearly_equal(tmp_path: Path) -> None:
    half = make_half_precision(REAL_MODEL, tmp_path / "half.gguf")
    mine = await alone(half)
    for way in (batched, cached, parked, guessed):
        parted(f"16-bit weights, {way.__name__}", mine, await way(half))


async def test_answers_of_a_quantised_model_are_the_same_bit_for_bit() -> None:
    mine = await alone(REAL_MODEL)
    for way in (batched, cached, parked, guessed):
        other = await way(REAL_MODEL)
        assert parted(f"quantised weights, {way.__name__}", mine, other) == 0
        assert [answer.gaps for answer in other] == [answer.gaps for answer in mine]
