"""The decode loop on a real (tiny, random) model: places, neighbours, cancels and failures."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from chassis.errors import Fault, Reason
from services.llm import engine_llama
from services.llm.engine import EngineSpec, Occupancy
from services.llm.engine_llama import LlamaEngine
from services.llm.engine_main import until_broken
from services.llm.llama_context import DecodeAborted
from services.llm.values import BarePrompt, TokenPrompt
from tests.engine_kit import (
    DEADLINE_S,
    FREED_WITHIN_S,
    PROMPT,
    answer_of,
    collect,
    first_text,
    loaded,
    refused,
    until,
)
from tests.greedy import greedy
from tests.tiny_gguf import make_tiny_gguf
from tests.tiny_mamba import make_tiny_mamba


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[LlamaEngine]:
    engine = loaded(EngineSpec(model, context_tokens=512, places=3, waiting=2, threads=1))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Takes a second or more to prefill 4000 tokens."""
    path = tmp_path_factory.mktemp("gguf") / "slow.gguf"
    return make_tiny_gguf(path, layers=8, embd=512, heads=8, ff=2048)


@pytest.fixture(scope="module")
def slow_engine(slow_model: Path) -> Iterator[LlamaEngine]:
    engine = loaded(
        EngineSpec(slow_model, context_tokens=4096, places=2, batch_tokens=2048, threads=1)
    )
    yield engine
    engine.close()


async def test_neighbours_do_not_change_an_answer(engine: LlamaEngine) -> None:
    alone, _, _ = await collect(engine.generate(PROMPT, answer_of(30)))
    again, _, _ = await collect(engine.generate(PROMPT, answer_of(30)))
    assert again == alone
    others = [
        engine.generate(BarePrompt(f"{n} rivers and bridges"), answer_of(60 + n)) for n in range(2)
    ]
    together = await asyncio.gather(
        collect(engine.generate(PROMPT, answer_of(30))), *map(collect, others)
    )
    # Another batch size is other arithmetic, and a near tie late in the answer may fall the other
    # way; a mixed-up cache would show in the first tokens.
    assert together[0][0][:12] == alone[:12]
    assert len({text for text, _, _ in together}) == 3


async def test_requests_beyond_the_places_wait_their_turn(engine: LlamaEngine) -> None:
    streams = [engine.generate(PROMPT, answer_of(150)) for _ in range(5)]
    tasks = [asyncio.create_task(collect(stream)) for stream in streams]
    await until(lambda: engine.occupancy() == Occupancy(3, 2))
    fault = await refused(engine.generate(PROMPT, answer_of(1)))
    assert fault.reason is Reason.QUEUE_FULL
    ends = [finish.timings.engine_wait_ms for _, finish, _ in await asyncio.gather(*tasks)]
    assert max(ends[:3]) < min(ends[3:])
    assert engine.occupancy() == Occupancy(0, 0)


async def test_a_cancel_while_waiting_gives_the_turn_up(engine: LlamaEngine) -> None:
    tasks = [asyncio.create_task(collect(engine.generate(PROMPT, answer_of(400)))) for _ in "1234"]
    await until(lambda: engine.occupancy() == Occupancy(3, 1))
    tasks[3].cancel()
    assert await until(lambda: engine.occupancy() == Occupancy(3, 0)) < FREED_WITHIN_S
    for task in tasks:
        task.cancel()
    assert await until(lambda: engine.occupancy() == Occupancy(0, 0)) < FREED_WITHIN_S


async def test_a_cancel_in_decode_frees_the_place(engine: LlamaEngine) -> None:
    async with aclosing(engine.generate(PROMPT, answer_of(450))) as chunks:
        await first_text(chunks)
        assert engine.occupancy().running == 1
    assert await until(lambda: engine.occupancy().running == 0) < FREED_WITHIN_S


@pytest.mark.parametrize("can_cut", [True, False], ids=["attention", "recurrent"])
async def test_a_cancel_in_prefill_frees_the_place_and_spares_the_neighbour(
    slow_engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch, can_cut: bool
) -> None:
    context = slow_engine._context
    assert context is not None
    cut, rolled_back = context.cut, []
    decode, begun_rows = context.decode, []

    def observed(sequence: int, position: int) -> bool:
        if position == 0:
            return cut(sequence, position)
        rolled_back.append(position)
        return can_cut and cut(sequence, position)  # a recurrent state refuses

    def counted() -> None:
        begun_rows.append(context.rows)
        decode()

    alone, _, _ = await collect(slow_engine.generate(PROMPT, answer_of(20)))
    monkeypatch.setattr(context, "cut", observed)
    monkeypatch.setattr(context, "decode", counted)
    neighbour = slow_engine.generate(PROMPT, answer_of(20))
    shown = (await first_text(neighbour)).text
    begun_rows.append(1)  # behind the neighbour's own prompt
    long = asyncio.create_task(
        collect(slow_engine.generate(BarePrompt("tide " * 3000), answer_of(1)))
    )
    await until(lambda: begun_rows[-1] > 1 + 20)  # a step of both has begun
    long.cancel()
    assert await until(lambda: slow_engine.occupancy().running < 2) < FREED_WITHIN_S
    rest, finish, _ = await collect(neighbour)
    assert rolled_back
    assert finish.usage.completion_tokens == 20
    assert (shown + rest)[:8] == alone[:8]


async def test_a_cancelled_prefill_stops_within_a_native_call(slow_engine: LlamaEngine) -> None:
    prompt = BarePrompt("tide " * 4000)
    async with aclosing(slow_engine.generate(prompt, answer_of(1))) as chunks:
        first = await anext(chunks)
        assert first.prefill is not None
        assert first.prefill.done_tokens == 2048  # and the next call, as long, begins now
    freed_s = await until(lambda: slow_engine.occupancy().running == 0)
    began = time.perf_counter()
    await collect(slow_engine.generate(BarePrompt("tide " * 2040), answer_of(1)))
    call_s = time.perf_counter() - began
    assert freed_s < FREED_WITHIN_S < call_s / 2, "or the model is too quick to show it"


async def test_a_slow_reader_loses_its_answer_and_nobody_elses(slow_model: Path) -> None:
    # Slow, so that the neighbour's reader never falls this far behind on a busy machine.
    engine = loaded(
        EngineSpec(slow_model, context_tokens=256, places=2, buffer_tokens=32, threads=1)
    )
    slow = engine.generate(PROMPT, answer_of(100))
    shown = (await first_text(slow)).text
    text, finish, _ = await collect(engine.generate(PROMPT, answer_of(100)))
    await until(lambda: engine.occupancy().running == 0)
    assert finish.usage.completion_tokens == 100
    rest = await anext(slow)
    assert 32 < rest.tokens < 40
    assert text[:6] == (shown + rest.text)[:6]
    assert (await refused(slow)).reason is Reason.SLOW_READER
    engine.close()


async def test_places_full_to_their_last_token_fit_together(model: Path) -> None:
    engine = loaded(EngineSpec(model, context_tokens=200, places=3, threads=1))
    prompt = BarePrompt("é" * 90)
    answers = [collect(engine.generate(prompt, answer_of(0))) for _ in range(3)]
    assert [tokens for _, _, tokens in await asyncio.gather(*answers)] == [20] * 3
    engine.close()


async def test_closing_ends_answers_with_a_fault(model: Path) -> None:
    engine = loaded(EngineSpec(model, context_tokens=4096, threads=1))
    chunks = engine.generate(PROMPT, answer_of(4000))
    waiting = asyncio.create_task(collect(engine.generate(PROMPT, answer_of(1))))
    await first_text(chunks)
    await asyncio.to_thread(engine.close)
    assert (await refused(chunks)).reason is Reason.SERVICE_UNAVAILABLE
    with pytest.raises(Fault, match="stopping"):
        await waiting
    assert (await refused(engine.generate(PROMPT, answer_of(1)))).reason is (
        Reason.SERVICE_UNAVAILABLE
    )


async def test_a_decode_that_fails_ends_its_answers_and_nothing_else(
    engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = engine._context
    assert context is not None
    with monkeypatch.context() as broken:
        # A position that is not the next one: the native library refuses the batch.
        row = context.add_row
        broken.setattr(context, "add_row", lambda s, at, token: row(s, at + 7, token))
        fault = await refused(engine.generate(PROMPT, answer_of(5)))
    assert fault.reason is Reason.ENGINE_CRASHED
    assert engine.occupancy() == Occupancy(0, 0)
    assert (await collect(engine.generate(PROMPT, answer_of(5))))[2] == 5


async def test_a_loop_that_fails_says_so_to_everybody(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded(EngineSpec(model, context_tokens=256, threads=1))
    broken = asyncio.create_task(until_broken(engine))
    await collect(engine.generate(PROMPT, answer_of(5)))
    assert not broken.done()
    monkeypatch.setattr(engine._context, "logits", lambda row: None)
    waiting = asyncio.create_task(refused(engine.generate(PROMPT, answer_of(5))))
    fault = await refused(engine.generate(PROMPT, answer_of(5)))
    assert fault.reason is (await waiting).reason is Reason.ENGINE_CRASHED
    assert not engine.healthy
    await asyncio.wait_for(broken, DEADLINE_S)
    assert (await refused(engine.generate(PROMPT, answer_of(5)))).reason is Reason.ENGINE_CRASHED
    engine.close()


async def test_a_step_that_never_ends_breaks_the_engine(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_llama, "CLOSE_TIMEOUT_S", 0.2)
    engine = loaded(EngineSpec(model, context_tokens=512, threads=1))
    broken = asyncio.create_task(until_broken(engine))
    stuck, go_on, decode = threading.Event(), threading.Event(), engine._context.decode  # type: ignore[union-attr]

    def hangs() -> None:
        stuck.set()
        go_on.wait(DEADLINE_S)
        decode()

    answer = engine.generate(PROMPT, answer_of(400))
    await first_text(answer)
    monkeypatch.setattr(engine._context, "decode", hangs)
    waiting = asyncio.create_task(refused(engine.generate(PROMPT, answer_of(1))))
    await asyncio.to_thread(stuck.wait, DEADLINE_S)
    with pytest.raises(Fault) as caught:
        await answer.aclose()
    assert caught.value.reason is Reason.ENGINE_CRASHED
    assert not engine.healthy
    await asyncio.wait_for(broken, DEADLINE_S)
    assert (await refused(engine.generate(PROMPT, answer_of(1)))).reason is Reason.ENGINE_CRASHED
    go_on.set()
    assert (await waiting).reason is Reason.ENGINE_CRASHED
    engine.close()


async def test_a_storm_of_requests_and_cancels_leaves_nothing_behind(engine: LlamaEngine) -> None:
    chance = random.Random(1)
    expected = [(await collect(engine.generate(PROMPT, answer_of(8))))[0]]

    async def one() -> None:
        prompt = BarePrompt("river " * chance.randint(1, 300))
        tokens, leaves_after = chance.randint(1, 60), chance.randint(0, 40)
        async with aclosing(engine.generate(prompt, answer_of(tokens))) as chunks:
            seen = 0
            async for chunk in chunks:
                seen += chunk.tokens
                if seen >= leaves_after:
                    return

    async def reader() -> None:
        for _ in range(30):
            await one()

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(reader() for _ in range(5)))
    await until(lambda: engine.occupancy() == Occupancy(0, 0))
    context = engine._context
    assert context is not None
    assert [context.held_tokens(place) for place in range(3)] == [0, 0, 0]
    expected.append((await collect(engine.generate(PROMPT, answer_of(8))))[0])
    assert expected[0] == expected[1]


async def test_a_newcomers_chunks_keep_time(slow_engine: LlamaEngine) -> None:
    """Its steps beside a neighbour are timed, and the next ones go by that."""
    assert slow_engine._loop is not None
    pace = slow_engine._loop._pace
    async with aclosing(slow_engine.generate(PROMPT, answer_of(3000))) as neighbour:
        await first_text(neighbour)
        before = pace._token_s
        await collect(slow_engine.generate(BarePrompt("one two three four " * 60), answer_of(1)))
    assert pace._token_s not in (0.0, before)


async def test_a_recurrent_state_is_not_trusted_after_a_step_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_mamba(tmp_path / "mamba.gguf")
    prompt = TokenPrompt(tuple(range(20, 80)))
    engine = loaded(EngineSpec(path, context_tokens=256, places=2, threads=1))
    assert engine._context is not None
    try:
        told = await greedy(engine, prompt, 8)
        decode, cut = engine._context.decode, engine._context.cut
        steps = 0

        def broken_off_once() -> None:
            nonlocal steps
            steps += 1
            decode()
            if steps == 2:  # the native side has written, and takes its positions back
                raise DecodeAborted

        def takes_back(sequence: int, position: int) -> bool:
            return position > 0 or cut(sequence, position)

        monkeypatch.setattr(engine._context, "decode", broken_off_once)
        monkeypatch.setattr(engine._context, "cut", takes_back)
        again = await greedy(engine, prompt, 8)
        assert again.tokens == told.tokens
        assert steps > 2
    finally:
        engine.close()
