"""The prefix cache and a full KV cache, on a real (tiny, random) model."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.llm.engine import EngineSpec, Occupancy
from services.llm.engine_llama import LlamaEngine
from services.llm.values import (
    BarePrompt,
    GenerateParams,
    SamplingParams,
    Tier,
    TokenLogprob,
    TokenPrompt,
)
from tests.engine_kit import GREEDY, answer_of, collect, first_text, loaded, until
from tests.tiny_gguf import make_tiny_gguf

Opened = Callable[..., LlamaEngine]
LONG = "the tide moves the water and the river moves the bridge " * 8


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


async def cached_tokens(engine: LlamaEngine, text: str, scope: str = "") -> tuple[int, int]:
    """Tokens of the prompt, and of these those that were found in the cache."""
    params = replace(answer_of(4), cache_scope=scope)
    _, finish, _ = await collect(engine.generate(BarePrompt(text), params))
    return finish.usage.prompt_tokens, finish.usage.cached_prompt_tokens


async def test_a_repeated_prompt_is_not_computed_again(opened: Opened) -> None:
    engine = opened()
    assert (await cached_tokens(engine, LONG))[1] == 0
    tokens, cached = await cached_tokens(engine, LONG)
    assert cached == tokens - 1


async def test_a_shared_beginning_is_reused_and_the_rest_computed(opened: Opened) -> None:
    engine = opened()
    first, _ = await cached_tokens(engine, LONG)
    tokens, cached = await cached_tokens(engine, LONG + "and something else")
    assert first - 4 <= cached < tokens


async def test_a_parked_prefix_comes_back(opened: Opened) -> None:
    engine = opened(idle_cache_tokens=0)
    await cached_tokens(engine, LONG)
    assert engine._loop is not None
    assert engine._loop._cache.used_cells == 0
    tokens, cached = await cached_tokens(engine, LONG)
    assert cached == tokens - 1


async def test_who_brings_a_parked_prefix_back_brings_it_for_others(opened: Opened) -> None:
    engine = opened(idle_cache_tokens=0)
    await cached_tokens(engine, LONG)
    assert engine._loop is not None
    restored, restore = list[int](), engine._loop._cache._restored

    def counted(sequence: int, state: memoryview, tokens: int) -> bool:
        restored.append(sequence)
        return restore(sequence, state, tokens)

    engine._loop._cache._restored = counted  # type: ignore[method-assign]
    prompts = [BarePrompt(LONG + end) for end in ("tide", "dune", "gull")]
    answers = await asyncio.gather(*(collect(engine.generate(p, answer_of(100))) for p in prompts))
    assert len(restored) == 1
    for _, finish, _ in answers:
        assert finish.usage.cached_prompt_tokens > 16


async def test_who_comes_is_in_the_books_before_his_first_step(opened: Opened) -> None:
    engine = opened()
    assert engine._loop is not None
    cache: Any = engine._loop._cache
    known, enter = list[bool](), cache.enter

    def entered(job: Any) -> None:
        enter(job)
        known.append(job.sequence in cache._cells._sequences)

    cache.enter = entered
    await cached_tokens(engine, LONG)
    assert known == [True]


async def test_who_leaves_in_his_prompt_leaves_no_second_copy_of_a_prefix(opened: Opened) -> None:
    engine = opened(idle_cache_tokens=0)
    await cached_tokens(engine, LONG)
    assert engine.holdings().parked_prefixes == 1
    assert engine._loop is not None
    context: Any = engine._loop._cache._context
    stands, goes_on, decode = threading.Event(), threading.Event(), context.decode

    def held() -> None:
        stands.set()
        assert goes_on.wait(10)
        decode()

    context.decode = held
    task = asyncio.create_task(collect(engine.generate(BarePrompt(LONG * 3), answer_of(5))))
    await until(stands.is_set)
    task.cancel()
    await until(lambda: all(job.cancelled for job in list(engine._loop._running)))  # type: ignore[union-attr]
    goes_on.set()
    await asyncio.wait([task])
    assert engine.occupancy().running == 0
    assert engine.holdings().parked_prefixes == 1


async def test_without_any_room_for_prefixes_there_is_no_reuse(opened: Opened) -> None:
    engine = opened(idle_cache_tokens=0, prefix_cache_mib=0)
    await cached_tokens(engine, LONG)
    assert (await cached_tokens(engine, LONG))[1] == 0


async def test_reuse_stays_within_a_scope_where_it_is_by_key(opened: Opened) -> None:
    engine = opened(cache_scope="key")
    await cached_tokens(engine, LONG, scope="alice")
    assert (await cached_tokens(engine, LONG, scope="bob"))[1] == 0
    assert (await cached_tokens(engine, LONG, scope="alice"))[1] > 0


async def test_reuse_is_for_everybody_where_it_is_global(opened: Opened) -> None:
    engine = opened(cache_scope="global")
    await cached_tokens(engine, LONG, scope="alice")
    assert (await cached_tokens(engine, LONG, scope="bob"))[1] > 0


async def test_a_running_prompt_is_shared(opened: Opened) -> None:
    engine = opened()
    async with aclosing(engine.generate(BarePrompt(LONG), answer_of(200))) as running:
        await first_text(running)
        tokens, cached = await cached_tokens(engine, LONG)
        assert cached == tokens - 1


async def test_a_full_cache_parks_and_everybody_gets_his_answer(opened: Opened) -> None:
    lone = opened(places=1, prefix_cache_mib=0, idle_cache_tokens=0)
    prompts = [TokenPrompt(tuple(range(20 + 50 * i, 60 + 50 * i))) for i in range(4)]
    alone = [(await collect(lone.generate(p, answer_of(150))))[2] for p in prompts]
    engine = opened(cache_tokens=512, idle_cache_tokens=0)
    answers = await asyncio.gather(*(collect(engine.generate(p, answer_of(150))) for p in prompts))
    assert [tokens for _, _, tokens in answers] == alone == [150] * 4
    assert engine._loop is not None
    assert engine._loop._cache.used_cells == 0
    occupancy = engine.occupancy()
    assert (occupancy.running, occupancy.waiting, occupancy.parked) == (0, 0, 0)


async def test_the_least_urgent_and_youngest_is_parked(opened: Opened) -> None:
    engine = opened(cache_tokens=512, places=3, idle_cache_tokens=0)
    assert engine._loop is not None
    parked: list[Tier] = []
    park = engine._loop._cache.park

    def seen(job: Any) -> None:
        parked.append(job.tier)
        park(job)

    engine._loop._cache.park = seen  # type: ignore[method-assign]
    tiers = (Tier.FREE, Tier.PAID, Tier.BACKGROUND)
    prompts = [TokenPrompt(tuple(range(20 + 50 * i, 60 + 50 * i))) for i in range(3)]
    await asyncio.gather(
        *(
            collect(engine.generate(p, replace(answer_of(200), tier=tier)))
            for p, tier in zip(prompts, tiers, strict=True)
        )
    )
    assert parked
    assert parked[0] is Tier.BACKGROUND
    assert Tier.PAID not in parked


async def test_a_cancelled_one_leaves_nothing_even_when_parked(opened: Opened) -> None:
    engine = opened(cache_tokens=512, places=2, idle_cache_tokens=0, prefix_cache_mib=64)
    prompts = [TokenPrompt(tuple(range(20 + 50 * i, 220 + 50 * i))) for i in range(2)]
    both = [asyncio.create_task(collect(engine.generate(p, answer_of(250)))) for p in prompts]
    await until(lambda: engine.occupancy().parked == 1)
    for task in both:
        task.cancel()
    await asyncio.gather(*both, return_exceptions=True)
    assert engine._loop is not None
    assert engine.occupancy().parked == 0
    assert engine._loop._cache._reserved == {}
    assert engine._loop._cache.used_cells == 0


async def test_the_books_of_the_cache_are_those_of_the_native_one(opened: Opened) -> None:
    """Whatever has run: at rest every sequence is free or a prefix, and the free ones are empty."""
    engine = opened(cache_tokens=512, places=3, idle_cache_tokens=300)
    prompts = [BarePrompt(LONG), BarePrompt(LONG + "tide"), BarePrompt("a river " * 30)] * 3
    answers = [
        asyncio.create_task(collect(engine.generate(p, replace(answer_of(120), choices=1 + i % 3))))
        for i, p in enumerate(prompts)
    ]
    await until(lambda: engine.occupancy().running > 1)
    for task in answers[::2]:
        task.cancel()
    await asyncio.gather(*answers, return_exceptions=True)
    await until(lambda: engine.occupancy() == Occupancy(0, 0))
    held = engine.holdings()
    assert held.free_sequences + held.idle_prefixes == held.sequences
    assert held.used_cells == held.idle_cells <= 300
    assert held.idle_prefixes > 0
    assert engine._loop is not None
    free = engine._loop._cache._free
    context = engine._context
    assert context is not None
    assert [context.held_tokens(sequence) for sequence in free] == [0] * len(free)


async def test_choices_share_the_prompt_and_differ(opened: Opened) -> None:
    engine = opened()
    params = GenerateParams(
        30, choices=3, sampling=SamplingParams(temperature=1.5, seed=7), ignore_eos=True
    )
    texts, usages = dict[int, str](), {}
    async with aclosing(engine.generate(BarePrompt(LONG), params)) as chunks:
        async for chunk in chunks:
            texts[chunk.choice] = texts.get(chunk.choice, "") + chunk.text
            if chunk.finish is not None:
                usages[chunk.choice] = chunk.finish.usage
    assert len(set(texts.values())) == 3
    assert usages[0].cached_prompt_tokens == 0
    prompt_tokens = usages[0].prompt_tokens
    assert [usages[i].cached_prompt_tokens for i in (1, 2)] == [prompt_tokens - 1] * 2
    assert engine.occupancy().running == 0


async def test_guessing_ahead_changes_nothing_and_is_counted(opened: Opened) -> None:
    plain, guessing = opened(), opened(speculation="lookup", draft_tokens=4)
    prompt = BarePrompt(LONG)
    text, finish, _ = await collect(plain.generate(prompt, answer_of(100, sampling=GREEDY)))
    assert finish.speculation is None
    same, finish, _ = await collect(guessing.generate(prompt, answer_of(100, sampling=GREEDY)))
    assert same == text
    told = finish.speculation
    assert told is not None
    assert 0 < told.accepted_tokens == told.saved_calls <= told.drafted_tokens


async def test_a_seed_gives_the_same_answer_with_guessing(opened: Opened) -> None:
    """The sampler's own chance decides at every token, whether it was guessed or not."""
    plain, guessing = opened(), opened(speculation="lookup", draft_tokens=4)
    sampling = SamplingParams(temperature=0.8, seed=11)
    for text in (LONG, "one two one two one two one"):
        params = answer_of(80, sampling=sampling)
        mine = (await collect(plain.generate(BarePrompt(text), params)))[0]
        assert (await collect(guessing.generate(BarePrompt(text), params)))[0] == mine


async def test_the_likelihood_of_every_token_is_told(opened: Opened) -> None:
    engine = opened()
    params = replace(answer_of(5), logprobs=True, top_logprobs=3)
    told: list[TokenLogprob] = []
    async with aclosing(engine.generate(BarePrompt("hello"), params)) as chunks:
        async for chunk in chunks:
            told += chunk.logprobs
    assert len(told) == 5
    for one in told:
        assert one.top[0] == one.chosen  # greedy
        assert len(one.top) == 3
        assert 0 >= one.top[0].logprob >= one.top[1].logprob >= one.top[2].logprob


async def test_an_unlikely_token_ends_the_answer(opened: Opened) -> None:
    engine = opened()
    sure = replace(answer_of(50), min_probability=1.0)
    text, finish, tokens = await collect(engine.generate(BarePrompt("hello"), sure))
    assert (text, tokens) == ("", 0)
    assert finish.reason == "stop"
