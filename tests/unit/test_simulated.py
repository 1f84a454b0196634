"""Profiles, the rule for counting, and answers that are planned: without engine or wire."""

import sys
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.config import ConfigError, load
from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from services.simulated.config import SimulatedConfig
from services.simulated.profile import Profile
from services.simulated.wire import check_answers, counted, planned
from services.simulated.words import count_talk, count_text, plan

LANGUAGE = "kind: language, lane: chat, resident_mib: 9"
IMAGE = "kind: diffusion, lane: image, resident_mib: 9, work_s: 6, load_s: 2"


def configured(folder: Path, text: str) -> SimulatedConfig:
    path = folder / "cohabit.yaml"
    path.write_text(f"simulated:\n{text}")
    return load(path).section("simulated", SimulatedConfig)


def profile(**changes: Any) -> Profile:
    known: dict[str, Any] = {
        "kind": "language",
        "places": 1,
        "context_tokens": 100,
        "answer_tokens": 10,
        "resident_mib": 9,
        "peak_mib": 0,
        "load_s": 0,
        "unload_s": 0,
        "work_s": 0,
        "prefill_tokens_per_s": 1e6,
        "tokens_per_s": 1e6,
    }
    return Profile(**{**known, **changes})


def test_times_and_rates_are_scaled_together(tmp_path: Path) -> None:
    own = configured(
        tmp_path,
        "  time_scale: 0.5\n  models:\n"
        f"    a: {{{LANGUAGE}, context_tokens: 99, tokens_per_s: 40, unload_s: 1}}\n"
        f"    b: {{{IMAGE}}}\n",
    )
    language, image = (own.models[key].profile(own.time_scale) for key in "ab")
    assert (language.tokens_per_s, language.prefill_tokens_per_s) == (80, 4000)
    assert (language.unload_s, image.load_s, image.work_s) == (0.5, 1, 3)
    assert language.answers
    assert not image.answers


def test_a_slower_world_does_not_unload_for_longer_than_engines_are_given(tmp_path: Path) -> None:
    own = configured(tmp_path, f"  time_scale: 9\n  models: {{b: {{{IMAGE}, unload_s: 3}}}}\n")
    assert own.models["b"].profile(own.time_scale).unload_s == 3


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (f"{{{LANGUAGE}}}", "yaml:3: simulated.models.a: expected context_tokens, which a"),
        (f"{{{LANGUAGE}, context_tokens: 9, peak_mib: 1}}",
         "yaml:3: simulated.models.a: expected no peak_mib: a language model's KV cache"),
        (f"{{{IMAGE}, kid: 1}}", "yaml:3: simulated.models.a.kid: unknown key"),
        (f"{{{IMAGE}, unload_s: 4}}", "yaml:3: simulated.models.a.unload_s: expected"),
        ("{kind: upstream, lane: x, resident_mib: 1}", "yaml:3: simulated.models.a.kind: expected"),
        ("{kind: matte, resident_mib: 1}", "yaml:3: simulated.models.a.lane: missing"),
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be_is_refused(tmp_path: Path, model: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, f"  models:\n    a: {model}\n")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), (" \n\t", 0), ("two words", 2), ("x" * 16, 1), ("x" * 17, 2), ("ä" * 33 + " b", 4)],
)
def test_a_token_is_a_run_without_white_space(text: str, tokens: int) -> None:
    assert count_text(text) == tokens
    assert count_talk([[text], [text, ""]]) == 8 + 2 * tokens


def test_an_answer_says_that_it_is_simulated_and_ends_by_itself() -> None:
    told = plan(limit_tokens=50, own_tokens=12, stops=())
    assert "".join(told.words).startswith("This answer is simulated: no model has computed it.")
    assert (len(told.words), told.cut_short, told.stop) == (12, False, "")


def test_an_answer_is_cut_at_its_limit() -> None:
    assert plan(limit_tokens=12, own_tokens=12, stops=()).cut_short
    assert plan(limit_tokens=3, own_tokens=12, stops=()).words == ("This", " answer", " is")


@given(st.integers(1, 200), st.integers(1, 200))
def test_a_word_of_an_answer_is_a_token(limit: int, own: int) -> None:
    told = plan(limit_tokens=limit, own_tokens=own, stops=())
    assert count_text("".join(told.words)) == len(told.words) == min(limit, own)


@given(st.lists(st.sampled_from(["an", "answer is", " simulated", "ted:", "xyz"]), max_size=4))
def test_an_answer_ends_before_the_stop_that_is_complete_first(stops: list[str]) -> None:
    whole = "".join(plan(limit_tokens=40, own_tokens=40, stops=()).words)
    told = plan(limit_tokens=40, own_tokens=40, stops=tuple(stops))
    said = "".join(told.words)
    ends = [whole.index(stop) + len(stop) for stop in stops if stop in whole]
    assert whole.startswith(said)
    assert bool(told.stop) == bool(ends)
    if ends:
        assert len(said) + len(told.stop) == min(ends)
        assert not told.cut_short


def talk(*texts: str, role: Any = pb.ROLE_USER, **fields: Any) -> pb.GenerateRequest:
    messages = [pb.Message(role=role, content=[pb.ContentPart(text=t)]) for t in texts]
    conversation = pb.GenerateRequest.Conversation(messages=messages)
    return pb.GenerateRequest(conversation=conversation, **fields)


async def test_prompts_are_counted_like_conversations_or_bare() -> None:
    assert await counted(talk("two words", "three more words")) == 4 + 2 + 4 + 3
    assert await counted(pb.GenerateRequest(prompt="two words")) == 2
    assert await counted(talk("w " * 100_000)) == 4 + 100_000


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.GenerateRequest(), Reason.INVALID_REQUEST),
        (talk(), Reason.INVALID_REQUEST),
        (talk("x", role=0), Reason.INVALID_REQUEST),
        (talk("x", role=pb.ROLE_TOOL), Reason.NOT_IMPLEMENTED),
    ],
)
async def test_what_cannot_be_read_is_refused(request_: Any, reason: Reason) -> None:
    with pytest.raises(Fault) as caught:
        await counted(request_)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("fields", "prompt_tokens", "reason"),
    [
        ({"choices": 2}, 1, Reason.NOT_IMPLEMENTED),
        ({"logprobs": True}, 1, Reason.NOT_IMPLEMENTED),
        ({"stop": [""]}, 1, Reason.INVALID_REQUEST),
        ({"stop": ["x"] * 65}, 1, Reason.INVALID_REQUEST),
        ({}, 0, Reason.INVALID_REQUEST),
        ({}, 100, Reason.CONTEXT_LENGTH_EXCEEDED),
        ({"max_tokens": 51}, 50, Reason.CONTEXT_LENGTH_EXCEEDED),
    ],
)
def test_what_a_real_engine_would_refuse_is_refused(
    fields: dict[str, Any], prompt_tokens: int, reason: Reason
) -> None:
    with pytest.raises(Fault) as caught:
        planned(talk("x", **fields), prompt_tokens, profile())
    assert caught.value.reason is reason


def test_an_answer_may_fill_the_context() -> None:
    assert len(planned(talk("x", max_tokens=50, ignore_eos=True), 50, profile()).words) == 50
    assert len(planned(talk("x", ignore_eos=True), 60, profile()).words) == 40
    assert len(planned(talk("x"), 60, profile()).words) == 10


def test_only_language_models_answer() -> None:
    check_answers("a", profile())
    with pytest.raises(Fault, match="'a' is of kind matte and answers no prompts"):
        check_answers("a", profile(kind="matte"))


def test_an_engine_process_is_light() -> None:
    code = (
        "import psutil, sys, services.simulated.engine_main\n"
        "print('pydantic' in sys.modules, 'yaml' in sys.modules)\n"
        "print(psutil.Process().memory_info().rss // 2**20)\n"
    )
    told = run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    modules, mib = told.stdout.splitlines()
    assert modules == "False False"
    assert int(mib) < 60
