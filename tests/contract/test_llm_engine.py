"""The engine on a real (tiny, random) model: what every caller of the protocol may rely on."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from services.llm.engine import EngineSpec, Occupancy
from services.llm.engine_llama import LlamaEngine
from services.llm.llama_api import Model, Vocabulary
from services.llm.template import CHATML_NOTE, Segment
from services.llm.tokenizer import Tokenizer
from services.llm.values import (
    BarePrompt,
    ChatMessage,
    Conversation,
    FinishReason,
    GenerateParams,
    Role,
    SamplingParams,
)
from tests.engine_kit import (
    DEADLINE_S,
    PROMPT,
    answer_of,
    collect,
    loaded,
    refused,
)
from tests.tiny_gguf import IM_END, make_tiny_gguf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[LlamaEngine]:
    engine = loaded(EngineSpec(model, context_tokens=512, places=3, waiting=2, threads=1))
    yield engine
    engine.close()


async def test_an_answer_has_text_and_ends_at_max_tokens(engine: LlamaEngine) -> None:
    text, finish, tokens = await collect(engine.generate(PROMPT, answer_of(20)))
    assert text
    assert finish.reason is FinishReason.LENGTH
    assert finish.usage.completion_tokens == tokens == 20
    assert finish.usage.prompt_tokens == engine.count_tokens(PROMPT)
    times = finish.timings
    assert 0 < times.tokenize_ms <= times.engine_wait_ms < times.first_token_ms
    assert times.prefill_ms == pytest.approx(times.first_token_ms - times.engine_wait_ms)
    assert times.decode_ms > 0
    assert engine.occupancy() == Occupancy(0, 0)


async def test_the_end_token_stops_unless_it_is_ignored(engine: LlamaEngine) -> None:
    biased = SamplingParams(temperature=0, logit_bias={IM_END: 1000.0})
    params = answer_of(5, sampling=biased, ignore_eos=False)
    text, finish, tokens = await collect(engine.generate(PROMPT, params))
    assert (text, tokens, finish.reason) == ("", 0, FinishReason.STOP)
    text, finish, tokens = await collect(engine.generate(PROMPT, answer_of(5, sampling=biased)))
    assert (text, tokens, finish.reason) == ("", 5, FinishReason.LENGTH)


async def test_a_stop_string_ends_the_answer_before_it(engine: LlamaEngine) -> None:
    whole, _, _ = await collect(engine.generate(PROMPT, answer_of(40)))
    stop = whole[10:14]
    params = answer_of(40, stop=("never to be seen", stop))
    text, finish, tokens = await collect(engine.generate(PROMPT, params))
    assert text == whole[: whole.index(stop)]
    assert (finish.reason, finish.stop) == (FinishReason.STOP, stop)
    assert tokens < 40


async def test_seeds_repeat_and_differ(engine: LlamaEngine) -> None:
    async def seeded(seed: int | None) -> str:
        hot = SamplingParams(temperature=2.0, top_k=0, top_p=1.0, seed=seed)
        return (await collect(engine.generate(PROMPT, answer_of(20, sampling=hot))))[0]

    assert await seeded(7) == await seeded(7)
    assert await seeded(7) != await seeded(8)
    assert await seeded(7) != await seeded(7 + 2**32)
    assert await seeded(None) != await seeded(None)


async def test_every_sampling_parameter_reaches_the_sampler(engine: LlamaEngine) -> None:
    sampling = SamplingParams(1.5, 0.9, 50, 0.01, 0.9, 1.3, 0.5, 0.5, 1, {7: -5.0}, 16)
    text, _, _ = await collect(engine.generate(PROMPT, answer_of(30, sampling=sampling)))
    plain = SamplingParams(temperature=1.5, top_p=0.9, top_k=50, seed=1)
    assert text != (await collect(engine.generate(PROMPT, answer_of(30, sampling=plain))))[0]
    only = SamplingParams(temperature=0, logit_bias={ord("A") - 33 + 3 + 33: 1000.0})
    assert (await collect(engine.generate(PROMPT, answer_of(3, sampling=only))))[0] == "AAA"


async def test_the_context_is_a_hard_end(engine: LlamaEngine) -> None:
    prompt = BarePrompt("é" * 240)  # two tokens each
    assert engine.count_tokens(prompt) == 480
    _, finish, tokens = await collect(engine.generate(prompt, answer_of(0)))
    assert (tokens, finish.reason) == (32, FinishReason.LENGTH)
    fault = await refused(engine.generate(prompt, answer_of(33)))
    assert fault.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    assert fault.metadata == {"prompt_tokens": "480", "context_tokens": "512"}
    assert "480" in fault.message
    fault = await refused(engine.generate(BarePrompt("é" * 256), answer_of(0)))
    assert fault.reason is Reason.CONTEXT_LENGTH_EXCEEDED


@pytest.mark.parametrize(
    "params",
    [
        GenerateParams(max_tokens=-1),
        GenerateParams(stop=("",)),
        GenerateParams(stop=("x" * 257,)),
        GenerateParams(stop=("x",) * 65),
        GenerateParams(sampling=SamplingParams(temperature=float("nan"))),
        GenerateParams(sampling=SamplingParams(top_p=0.0)),
        GenerateParams(sampling=SamplingParams(top_k=-1)),
        GenerateParams(sampling=SamplingParams(seed=-1)),
        GenerateParams(sampling=SamplingParams(repetition_penalty=0.0)),
        GenerateParams(sampling=SamplingParams(logit_bias={1_000_000: 1.0})),
        GenerateParams(sampling=SamplingParams(penalty_window_tokens=-1)),
    ],
)
async def test_parameters_out_of_range_are_refused(
    engine: LlamaEngine, params: GenerateParams
) -> None:
    fault = await refused(engine.generate(PROMPT, params))
    assert fault.reason is Reason.INVALID_REQUEST
    assert "must be" in fault.message


async def test_what_can_never_fit_is_refused_before_it_is_tokenised(
    engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megabytes that a client sends and abandons must not keep a core busy."""

    def never(*_: object) -> list[int]:
        raise AssertionError("it was tokenised")

    monkeypatch.setattr(Vocabulary, "tokens", never)
    endless = BarePrompt("word " * 2_000_000)
    with pytest.raises(Fault) as caught:
        await collect(engine.generate(endless, answer_of(1)))
    assert caught.value.reason is Reason.CONTEXT_LENGTH_EXCEEDED
    with pytest.raises(Fault) as caught:
        engine.count_tokens(endless)
    assert caught.value.reason is Reason.CONTEXT_LENGTH_EXCEEDED


async def test_an_empty_prompt_is_refused(engine: LlamaEngine) -> None:
    fault = await refused(engine.generate(BarePrompt(""), answer_of(1)))
    assert fault.reason is Reason.INVALID_REQUEST


def test_counting_needs_no_weights(engine: LlamaEngine, model: Path) -> None:
    prompts = Tokenizer.open(model).prompts
    conversation = Conversation((ChatMessage(Role.USER, "hello <|im_end|> there"),))
    assert len(prompts.tokens(conversation)) == engine.count_tokens(conversation)
    assert len(prompts.tokens(PROMPT)) == engine.count_tokens(PROMPT) > 4


def test_only_the_template_speaks_in_control_tokens(model: Path) -> None:
    vocabulary = Model(str(model), vocabulary_only=True).vocabulary
    assert vocabulary.tokens([Segment("<|im_end|>", True)]) == [IM_END]
    plain = vocabulary.tokens([Segment("<|im_end|>", False)])
    assert IM_END not in plain
    assert b"".join(vocabulary.piece(token)[0] for token in plain) == b"<|im_end|>"


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_round_trips_through_tokens(engine: LlamaEngine, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    vocabulary = engine._prompts.vocabulary  # type: ignore[union-attr]
    tokens = vocabulary.tokens([Segment(text, False)])
    assert b"".join(vocabulary.piece(token)[0] for token in tokens) == text.encode()


def load_refusal(spec: EngineSpec) -> str:
    with pytest.raises(Fault) as caught:
        LlamaEngine(spec).load(lambda _: None)
    assert caught.value.reason is Reason.MODEL_FAILED
    return caught.value.message


def test_what_cannot_be_loaded_says_why(model: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[:100_000])
    assert "cut off" in load_refusal(EngineSpec(cut))
    hollow = make_tiny_gguf(tmp_path / "hollow.gguf", weights=False)
    assert "blk.0" in load_refusal(EngineSpec(hollow))
    assert "trained for 4096" in load_refusal(EngineSpec(model, context_tokens=8192))


def test_a_load_reports_its_progress_and_can_be_given_up(model: Path) -> None:
    seen: list[float] = []
    engine = LlamaEngine(EngineSpec(model, context_tokens=256, threads=1))
    assert not engine.healthy
    engine.load(seen.append)
    assert engine.healthy
    engine.close()
    assert not engine.healthy
    assert seen == sorted(seen)
    assert seen[-1] == 1.0

    def give_up(_: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        LlamaEngine(EngineSpec(model)).load(give_up)


def test_facts_tell_the_room_it_takes(tmp_path: Path) -> None:
    path = make_tiny_gguf(tmp_path / "bare.gguf", template=None)
    engine = loaded(EngineSpec(path, places=2, threads=1))
    facts = engine.facts
    assert (facts.context_tokens, facts.trained_context_tokens, facts.places) == (4096, 4096, 2)
    assert facts.kv_cache_mib == 2 * 4096 * 256 // 2**20
    assert facts.template_note == CHATML_NOTE
    engine.close()


async def test_an_engine_that_is_not_loaded_says_so(model: Path) -> None:
    fault = await refused(LlamaEngine(EngineSpec(model)).generate(PROMPT, answer_of(1)))
    assert fault.reason is Reason.SERVICE_UNAVAILABLE


def test_the_protocol_brings_no_heavy_library() -> None:
    code = (
        "import sys, services.llm.engine, services.llm.core, services.llm.gguf_meta\n"
        "assert not {'llama_cpp', 'numpy', 'jinja2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=DEADLINE_S)
