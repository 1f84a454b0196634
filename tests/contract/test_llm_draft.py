"""Guesses of a draft model, on real (tiny, random) models: they save steps and change nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from chassis.errors import Fault, Reason
from services.llm.draft_model import DraftModel, best, mismatch
from services.llm.engine import EngineSpec
from services.llm.engine_llama import MORE_RUNNING, LlamaEngine
from services.llm.values import BarePrompt, GenerateParams, SamplingParams, Speculation, TokenPrompt
from tests.engine_kit import GREEDY, answer_of, collect, first_text, loaded, until
from tests.tiny_gguf import IM_END, make_tiny_gguf

Opened = Callable[..., LlamaEngine]
LONG = "the tide moves the water and the river moves the bridge " * 8
PROMPTS = ("hello", LONG, "one two one two one two one", "please write a short story")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("gguf")
    return {
        "model": make_tiny_gguf(folder / "model.gguf"),
        "other": make_tiny_gguf(folder / "other.gguf", seed=1, layers=1),
        "short": make_tiny_gguf(folder / "short.gguf", context=64),
        "foreign": make_tiny_gguf(folder / "foreign.gguf", merges=150),
        "renamed": make_tiny_gguf(folder / "renamed.gguf", merges=176, more_controls=("<|x|>",)),
    }


@pytest_asyncio.fixture
async def opened(files: dict[str, Path]) -> AsyncIterator[Opened]:
    engines: list[LlamaEngine] = []

    def made(draft: str = "", **fields: Any) -> LlamaEngine:
        if draft:
            fields |= {"speculation": "draft", "draft_path": files[draft]}
        spec = EngineSpec(
            files["model"], threads=1, **({"context_tokens": 512, "places": 4} | fields)
        )
        engines.append(loaded(spec))
        return engines[-1]

    yield made
    for engine in engines:
        engine.close()


@pytest.fixture(autouse=True)
def _all_guesses_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random models are seldom sure of anything."""
    monkeypatch.setattr("services.llm.draft_model.LEAST_PROBABILITY", 0.0)


def draft_of(engine: LlamaEngine) -> DraftModel:
    assert engine._draft is not None
    return engine._draft


async def answered(
    engine: LlamaEngine, text: str, params: GenerateParams
) -> tuple[str, Speculation | None]:
    said, finish, _ = await collect(engine.generate(BarePrompt(text), params))
    return said, finish.speculation


async def test_the_model_as_its_own_draft_is_nearly_always_right(opened: Opened) -> None:
    plain, guessing = opened(), opened("model")
    drafted = accepted = 0
    for text in PROMPTS:
        params = answer_of(100, sampling=GREEDY)
        alone, nothing = await answered(plain, text, params)
        said, told = await answered(guessing, text, params)
        assert said == alone
        assert nothing is None
        assert told is not None
        assert told.saved_calls == told.accepted_tokens <= told.drafted_tokens
        drafted, accepted = drafted + told.drafted_tokens, accepted + told.accepted_tokens
    assert accepted > 0.9 * drafted > 100
    tally = guessing.tally
    assert (tally.drafted_tokens, tally.accepted_tokens) == (drafted, accepted)
    assert tally.saved_calls == accepted
    assert guessing._loop is not None
    assert plain._loop is not None
    assert guessing._loop.step.steps < 0.6 * plain._loop.step.steps


async def test_another_model_as_draft_changes_nothing(opened: Opened) -> None:
    plain, guessing = opened(), opened("other")
    for sampling in (GREEDY, SamplingParams(temperature=0.8, seed=11)):
        for text in PROMPTS:
            params = answer_of(80, sampling=sampling)
            alone, _ = await answered(plain, text, params)
            said, told = await answered(guessing, text, params)
            assert said == alone
            assert told is not None
            assert told.drafted_tokens > 0


async def test_a_seed_gives_the_same_answer_with_good_guesses(opened: Opened) -> None:
    """Nearly always: logits of rows that are computed together differ in their last bits, as with
    neighbours, and chance may fall between them.
    """
    plain, guessing = opened(), opened("model")
    same = accepted = 0
    for seed in range(8):
        params = answer_of(40, sampling=SamplingParams(temperature=0.6, seed=seed))
        alone, _ = await answered(plain, LONG, params)
        said, told = await answered(guessing, LONG, params)
        same += said == alone
        assert told is not None
        accepted += told.accepted_tokens
    assert accepted > 0
    assert same >= 6


async def test_side_by_side_each_is_guessed_for_by_his_own_text(opened: Opened) -> None:
    plain, guessing = opened(), opened("model")
    params = answer_of(60, sampling=GREEDY)
    alone = [(await answered(plain, text, params))[0] for text in PROMPTS]
    together = await asyncio.gather(*(answered(guessing, text, params) for text in PROMPTS))
    assert [said for said, _ in together] == alone
    for _, told in together:
        assert told is not None
        assert told.accepted_tokens > 0.5 * told.drafted_tokens > 10


async def test_unsure_guesses_are_not_tried(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.llm.draft_model.LEAST_PROBABILITY", 1.1)
    _, told = await answered(opened("model"), LONG, answer_of(40))
    assert told == Speculation(0, 0, 0)


async def test_the_end_of_an_answer_is_not_guessed(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.llm.draft_model.best", lambda _: (IM_END, 1.0))
    _, told = await answered(opened("model"), LONG, answer_of(20))
    assert told == Speculation(0, 0, 0)


async def test_a_long_prompt_is_read_in_chunks_and_guessed_for_afterwards(opened: Opened) -> None:
    engine = opened("model", prefill_chunk_tokens=8)
    read: list[int] = []
    context = draft_of(engine)._context
    decode = context.decode

    def seen() -> None:
        read.append(context.rows)
        decode()

    context.decode = seen  # type: ignore[method-assign]
    _, told = await answered(engine, LONG, answer_of(60))
    assert told is not None
    assert told.accepted_tokens > 0
    assert max(read) == 8
    assert sum(read) >= engine.count_tokens(BarePrompt(LONG))


async def test_who_has_gone_gives_his_sequence_back(opened: Opened) -> None:
    engine = opened("model", places=2)
    draft = draft_of(engine)
    for _ in range(3):
        async with aclosing(engine.generate(BarePrompt(LONG), answer_of(300))) as chunks:
            await first_text(chunks)
    await answered(engine, "hello", answer_of(20))
    await until(lambda: len(draft._free) == 2 + MORE_RUNNING)
    assert not draft._trails
    assert draft.held_tokens == 0


async def test_without_room_in_its_cache_it_guesses_nothing(opened: Opened) -> None:
    engine = opened("model")
    draft = draft_of(engine)
    draft._cells = 20
    _, told = await answered(engine, LONG, answer_of(40))
    assert told == Speculation(0, 0, 0)
    assert draft.held_tokens == 0
    _, told = await answered(engine, "hello", answer_of(10))
    assert told is not None
    assert told.drafted_tokens > 0


async def test_a_text_longer_than_the_draft_was_trained_for_is_not_guessed_for(
    opened: Opened,
) -> None:
    engine = opened("short")
    _, told = await answered(engine, LONG, answer_of(40))
    assert told == Speculation(0, 0, 0)
    _, told = await answered(engine, "hello", answer_of(200))
    assert told is not None
    assert 0 < told.drafted_tokens < 70


async def test_parked_ones_are_guessed_for_when_they_are_back(opened: Opened) -> None:
    prompts = [TokenPrompt(tuple(range(20 + 50 * i, 60 + 50 * i))) for i in range(4)]
    lone = opened(places=1)
    alone = [(await collect(lone.generate(p, answer_of(150))))[0] for p in prompts]
    engine = opened("model", cache_tokens=512, idle_cache_tokens=0)
    answers = await asyncio.gather(*(collect(engine.generate(p, answer_of(150))) for p in prompts))
    assert [text for text, _, _ in answers] == alone
    assert engine.occupancy().parked == 0


async def test_a_draft_that_fails_ends_guessing_and_nothing_else(opened: Opened) -> None:
    plain, engine = opened(), opened("model")
    alone, _ = await answered(plain, LONG, answer_of(40))

    def fails() -> None:
        raise Fault(Reason.ENGINE_CRASHED, "The test says so.")

    draft_of(engine)._context.decode = fails  # type: ignore[method-assign]
    for _ in range(2):
        said, told = await answered(engine, LONG, answer_of(40))
        assert said == alone
        assert told == Speculation(0, 0, 0)
    assert engine.healthy


async def test_a_cancel_while_it_guesses_frees_the_place(opened: Opened) -> None:
    engine = opened("model")
    async with aclosing(engine.generate(BarePrompt(LONG), answer_of(400))) as chunks:
        await first_text(chunks)
    await until(lambda: engine.occupancy().running == 0)
    assert (await answered(engine, "hello", answer_of(5)))[0]


@pytest.mark.parametrize(
    ("draft", "why"),
    [("foreign", "it has 409 tokens instead of 436"), ("renamed", "its token")],
)
async def test_another_vocabulary_is_refused(opened: Opened, draft: str, why: str) -> None:
    with pytest.raises(Fault, match=why) as caught:
        opened(draft)
    assert caught.value.reason is Reason.MODEL_FAILED
    assert f"{draft}.gguf" in caught.value.message
    assert "model.gguf" in caught.value.message


def test_where_vocabularies_differ() -> None:
    assert mismatch([b"a", b"b"], [b"a", b"b"]) == ""
    assert mismatch([b"a"], [b"a", b"b"]) == "it has 1 tokens instead of 2"
    assert mismatch([b"a", b"\xff"], [b"a", b"b"]) == "its token 1 is '\ufffd' instead of 'b'"


def test_the_likeliest_token_with_its_probability() -> None:
    logits = np.log(np.array([0.2, 0.7, 0.1], np.float32)) + 50
    token, probability = best(logits)
    assert token == 1
    assert probability == pytest.approx(0.7, abs=1e-5)
