"""A full KV cache whose cells several sequences share: nobody stands still, and bounds hold."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.llm.engine import EngineSpec, Occupancy
from services.llm.engine_llama import LlamaEngine
from services.llm.llama_api import Model
from services.llm.values import GenerateParams, Prompt, Tier, TokenPrompt
from tests.engine_kit import DEADLINE_S, answer_of, collect, first_text, loaded, until
from tests.tiny_gguf import make_tiny_gguf

Opened = Callable[..., LlamaEngine]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest_asyncio.fixture
async def opened(model: Path) -> AsyncIterator[Opened]:
    engines: list[LlamaEngine] = []

    def made(**fields: Any) -> LlamaEngine:
        spec = EngineSpec(model, threads=1, **({"context_tokens": 512, "places": 4} | fields))
        engines.append(loaded(spec))
        return engines[-1]

    yield made
    for engine in engines:
        engine.close()


def prompt_of(tokens: int, start: int = 20) -> TokenPrompt:
    """Other tokens for every `start`."""
    return TokenPrompt(tuple(start + i % 199 for i in range(tokens)))


async def all_choices(engine: LlamaEngine, prompt: Prompt, params: GenerateParams) -> list[int]:
    """How many tokens each choice has come to."""
    tokens = [0] * params.choices
    async with asyncio.timeout(DEADLINE_S), aclosing(engine.generate(prompt, params)) as chunks:
        async for chunk in chunks:
            tokens[chunk.choice] += chunk.tokens
    return tokens


def loop_of(engine: LlamaEngine) -> Any:
    return engine._loop


async def test_a_parked_job_stays_away_while_choices_hold_a_prompt_together(opened: Opened) -> None:
    """Cells that two running sequences share are held: who is let in for them is parked again
    at once, and nobody ever gets on.
    """
    engine = opened(cache_tokens=512, idle_cache_tokens=0, places=2)
    pair = all_choices(engine, prompt_of(150), replace(answer_of(120), choices=2, tier=Tier.PAID))
    other = collect(engine.generate(prompt_of(100, start=250), answer_of(120)))
    tokens, (_, _, others) = await asyncio.gather(pair, other)
    assert (tokens, others) == ([120, 120], 120)


async def test_choices_follow_a_leader_whose_prompt_was_known_and_guessed_on(
    opened: Opened,
) -> None:
    engine = opened(speculation="lookup", draft_tokens=4)
    prompt = prompt_of(300)
    for choices in (1, 2):
        params = replace(answer_of(20), choices=choices)
        assert await all_choices(engine, prompt, params) == [20] * choices


async def test_idle_prefixes_that_share_cells_keep_to_the_bound(opened: Opened) -> None:
    engine = opened(idle_cache_tokens=100)
    await all_choices(engine, prompt_of(300), replace(answer_of(20), choices=3))
    assert loop_of(engine)._cache.used_cells <= 100


async def test_a_prefix_keeps_to_the_bound_when_who_shared_it_has_gone(opened: Opened) -> None:
    engine = opened(idle_cache_tokens=100, buffer_tokens=30)
    prompt = prompt_of(300)
    async with aclosing(engine.generate(prompt, answer_of(200))) as slow:
        await first_text(slow)
        await collect(engine.generate(prompt, answer_of(5)))
        await until(lambda: engine.occupancy().running == 0)  # cut off, its cells dropped
    assert loop_of(engine)._cache.used_cells <= 100


async def test_choices_of_one_request_are_one_request_to_the_queue(opened: Opened) -> None:
    engine = opened(cache_tokens=512, places=2, waiting=1, idle_cache_tokens=0)
    many = asyncio.create_task(
        all_choices(engine, prompt_of(350), replace(answer_of(100), choices=4))
    )
    await until(lambda: len(loop_of(engine)._waiting) > 1)
    assert engine.occupancy() == Occupancy(1, 0)
    assert (await collect(engine.generate(prompt_of(20, start=250), answer_of(5))))[2] == 5
    assert await many == [100] * 4


async def test_a_parked_job_does_not_hold_up_a_more_urgent_one(opened: Opened) -> None:
    engine = opened(cache_tokens=512, places=3, idle_cache_tokens=0)
    background = replace(answer_of(150), tier=Tier.BACKGROUND)
    ended: list[str] = []

    async def one(name: str, prompt: Prompt, params: GenerateParams) -> None:
        assert (await collect(engine.generate(prompt, params)))[2] == params.max_tokens
        ended.append(name)

    tasks = [asyncio.create_task(one("first", prompt_of(200), answer_of(250)))]
    await until(lambda: engine.occupancy().running == 1)
    tasks += [asyncio.create_task(one("parked", prompt_of(240, start=230), background))]
    await until(lambda: engine.occupancy().parked == 1)
    paid = replace(answer_of(2), tier=Tier.PAID)
    tasks += [asyncio.create_task(one("paid", prompt_of(1, start=25), paid))]
    await asyncio.gather(*tasks)
    assert ended == ["paid", "first", "parked"]


async def test_who_begins_again_tells_no_progress_behind_its_prompt(opened: Opened) -> None:
    engine = opened(cache_tokens=512, places=2, idle_cache_tokens=0, prefix_cache_mib=0)
    parked = asyncio.create_task(_prefills(engine, prompt_of(100, start=230)))
    assert (await collect(engine.generate(prompt_of(200), answer_of(200))))[2] == 200
    told = await parked
    assert told == sorted(told)
    assert told[-1] <= 100


async def _prefills(engine: LlamaEngine, prompt: Prompt) -> list[int]:
    params = replace(answer_of(250), tier=Tier.BACKGROUND)
    async with aclosing(engine.generate(prompt, params)) as chunks:
        return [chunk.prefill.done_tokens async for chunk in chunks if chunk.prefill]


async def test_a_state_that_cannot_be_cut_is_not_guessed_on(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Model, "shares_prefixes", property(lambda _: False))
    engine = opened(speculation="lookup")
    _, finish, _ = await collect(engine.generate(prompt_of(400), answer_of(50)))
    assert finish.speculation is None


@pytest.mark.parametrize("choices", [1, 3])
async def test_who_had_to_go_does_not_come_back_before_the_others_got_on(
    opened: Opened, choices: int
) -> None:
    """Prompts that are not in the cache yet want cells, too: more of them at a time than the cache
    has parked one, brought it back, and were as far as before."""
    engine = opened(cache_tokens=512, batch_tokens=512, ubatch_tokens=512, idle_cache_tokens=0)
    params = replace(answer_of(200), choices=choices)
    answers = [all_choices(engine, prompt_of(200, start=20 + i), params) for i in range(6)]
    assert await asyncio.gather(*answers) == [[200] * choices] * 6
    assert engine.occupancy() == Occupancy(0, 0)
    assert engine.holdings().used_cells == 0
