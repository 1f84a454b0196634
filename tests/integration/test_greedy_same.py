"""Greedy answers of the real model are the same however they are computed: alone, in a batch, from
a cached prefix, parked and resumed, and with guessing ahead.

COHABIT_DEEP=1 asks 200 prompts instead of a few, and prints how many answers part.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.llm.engine import EngineSpec
from services.llm.values import ChatMessage, Conversation, Prompt, Role
from tests.engine_kit import loaded
from tests.greedy import Greedy, greedy, parted_at
from tests.integration.house import REAL_MODEL

pytestmark = [pytest.mark.model, pytest.mark.timeout(3600)]

DEEP = os.environ.get("COHABIT_DEEP") == "1"
PROMPTS = 200 if DEEP else 16
TOKENS = 24
SIDE_BY_SIDE = 8
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
async def engine(**fields: Any) -> AsyncIterator[Any]:
    made = loaded(EngineSpec(REAL_MODEL, context_tokens=512, threads=1, **fields))
    try:
        yield made
    finally:
        made.close()


async def one_by_one(made: Any) -> list[Greedy]:
    return [await greedy(made, prompt(i), TOKENS) for i in range(PROMPTS)]


async def together(made: Any, side_by_side: int) -> list[Greedy]:
    answers: list[Greedy] = []
    for first in range(0, PROMPTS, side_by_side):
        batch = range(first, min(PROMPTS, first + side_by_side))
        answers += await asyncio.gather(*(greedy(made, prompt(i), TOKENS) for i in batch))
    return answers


def judge(way: str, alone: Sequence[Greedy], other: Sequence[Greedy]) -> None:
    parted = [parted_at(a, b) for a, b in zip(alone, other, strict=True)]
    count = sum(at is not None for at in parted)
    told = f"{way}: {count} of {len(parted)} answers part, each where two tokens are near equal\n"
    sys.stdout.write(told)


async def test_greedy_answers_are_the_same_by_every_way() -> None:
    async with engine(places=1, prefix_cache_mib=0, idle_cache_tokens=0) as made:
        alone = await one_by_one(made)
    async with engine(places=SIDE_BY_SIDE, prefix_cache_mib=0, idle_cache_tokens=0) as made:
        judge("in a batch of 8", alone, await together(made, SIDE_BY_SIDE))
    async with engine(places=1, prefix_cache_mib=512) as made:
        await one_by_one(made)
        cached = await one_by_one(made)
        assert all(answer.usage.cached_prompt_tokens >= 16 for answer in cached)
        judge("with a cached prefix", alone, cached)
    async with engine(places=SIDE_BY_SIDE, cache_tokens=512, idle_cache_tokens=0) as made:
        parked = 0
        park = made._loop._cache.park

        def counted(job: Any) -> None:
            nonlocal parked
            parked += 1
            park(job)

        made._loop._cache.park = counted
        judge("parked and resumed", alone, await together(made, SIDE_BY_SIDE))
        assert parked > 0, "the cache was never full: this shows nothing"
    async with engine(places=1, speculation="lookup", draft_tokens=4) as made:
        judge("with guessing ahead", alone, await one_by_one(made))
