"""OpenAI's chat body into llm.v1, and refusals that name the field."""

import json
import tracemalloc
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.chat_request import ChatRequest, parse
from edge.speech import PARAM
from services.llm.limits import check_params
from services.llm.values import GenerateParams, SamplingParams

USER = {"role": "user", "content": "Hello"}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()


def parsed(**fields: Any) -> ChatRequest:
    return parse(body(**fields))


def refused(raw: bytes) -> Fault:
    with pytest.raises(Fault) as caught:
        parse(raw)
    return caught.value


def test_the_least_request() -> None:
    chat = parsed()
    assert (chat.model, chat.stream, chat.include_usage) == ("m", False, False)
    expected = pb.GenerateRequest(model="m", sampling=pb.Sampling())
    turn = expected.conversation.messages.add(role=pb.ROLE_USER)
    turn.content.add().text = "Hello"
    assert chat.generate == expected


def test_everything_that_is_understood() -> None:
    chat = parsed(
        stream=True,
        stream_options={"include_usage": True},
        max_completion_tokens=9,
        stop=["a", "b"],
        temperature=0,
        top_p=0.5,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=-1,
        logit_bias={"50": -100},
        top_k=3,
        min_p=0.25,
        typical_p=0.75,
        repetition_penalty=1.5,
        ignore_eos=True,
        n=16,
        logprobs=True,
        top_logprobs=20,
        max_sentences=3,
        min_probability=0.5,
        continue_final_message=False,
    )
    assert chat.stream
    assert chat.include_usage
    sampling = pb.Sampling(
        temperature=0,
        top_p=0.5,
        top_k=3,
        min_p=0.25,
        typical_p=0.75,
        repetition_penalty=1.5,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=2**64 - 1,
        logit_bias={50: -100},
    )
    assert chat.generate.sampling == sampling
    assert chat.generate.sampling.HasField("temperature")
    assert list(chat.generate.stop) == ["a", "b"]
    assert (chat.generate.max_tokens, chat.generate.ignore_eos) == (9, True)
    assert (chat.generate.choices, chat.generate.max_sentences) == (16, 3)
    assert (chat.generate.logprobs, chat.generate.top_logprobs) == (True, 20)
    assert chat.generate.min_probability == 0.5


def test_roles_and_parts() -> None:
    chat = parsed(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "system", "content": [{"type": "text", "text": "a"}]},
            {"role": "user", "name": "Ann", "content": [{"type": "text", "text": t} for t in "bc"]},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "refusal": None},
        ]
    )
    turns = chat.generate.conversation.messages
    assert [turn.role for turn in turns] == [
        pb.ROLE_SYSTEM,
        pb.ROLE_SYSTEM,
        pb.ROLE_USER,
        pb.ROLE_ASSISTANT,
    ]
    assert [[part.text for part in turn.content] for turn in turns] == [
        ["Be brief."],
        ["a"],
        ["b", "c"],
        [],
    ]
    assert (turns[2].name, turns[3].reasoning) == ("Ann", "Hm.")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 5},
        {"max_tokens": 5, "max_completion_tokens": 5},
    ],
)
def test_both_names_of_the_longest_answer(fields: dict[str, int]) -> None:
    assert parsed(**fields).generate.max_tokens == 5


def test_a_single_stop() -> None:
    assert list(parsed(stop="x").generate.stop) == ["x"]


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"parallel_tool_calls": True, "prediction": {"type": "content"}},
        {"max_sentences": 0, "min_probability": 0, "add_generation_prompt": True},
        {"thinking": "default", "chat_template_kwargs": {}, "verbosity": "medium"},
        {"moderation": None, "prompt_cache_options": {"a": 1}},
        {"prompt_cache_key": "k", "safety_identifier": "s"},
        {"tools": [], "tool_choice": "none", "functions": None},
        {"response_format": {"type": "text"}},
        {"logprobs": False, "top_logprobs": None, "modalities": ["text"]},
        dict.fromkeys(("temperature", "top_p", "stop", "max_tokens", "stream", "seed")),
    ],
)
def test_what_changes_nothing_is_let_through(fields: dict[str, Any]) -> None:
    assert parsed(**fields).generate == parsed().generate


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 9e-6}, "top_p"),
    ({"typical_p": 1e-7}, "typical_p"),
    ({"repetition_penalty": 9e-4}, "repetition_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"top_k": -1}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"typical_p": 0}, "typical_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"seed": 2**63}, "seed"),
    ({"seed": "x"}, "seed"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 2**31}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
    ({"n": 17}, "n"),
    ({"n": 0}, "n"),
    ({"max_sentences": -1}, "max_sentences"),
    ({"min_probability": 1.1}, "min_probability"),
    ({"stop": ["x"] * 65}, "stop"),
    ({"stop": ""}, "stop"),
    ({"stop": "é" * 129}, "stop"),
    ({"stop": [1]}, "stop[0]"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"other": 1}}, "stream_options.other"),
    ({"model": ""}, "model"),
    ({"model": 3}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": "Hello"}, "messages"),
    ({"messages": [USER] * 16_385}, "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 1025}]},
        "messages[0].content",
    ),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [USER, {"role": "god", "content": "x"}]}, "messages[1].role"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
    (
        {"messages": [{"role": "user", "content": "x", "reasoning_content": "Hm."}]},
        "messages[0].reasoning_content",
    ),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages[0].mood"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
        "messages[0].content[0].type",
    ),
    ({"functions": [{}]}, "functions"),
    ({"function_call": {"name": "f"}}, "function_call"),
    (
        {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]},
        "messages[0].function_call",
    ),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"verbosity": "low"}, "verbosity"),
    ({"moderation": {"model": "x"}}, "moderation"),
    ({"web_search_options": {}}, "web_search_options"),
    ({"best_of": 3}, "best_of"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[str(f)[:60] for f, _ in REFUSED])
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    fault = refused(body(**fields))
    assert fault.reason is Reason.INVALID_REQUEST
    assert fault.metadata[PARAM] == param
    assert param.removesuffix("[...]").rsplit(".", 1)[-1] in fault.message
    assert fault.message.endswith(".")


def test_what_is_let_through_is_in_the_engines_range_in_its_precision() -> None:
    least = {"top_p": 1e-5, "typical_p": 1e-5, "repetition_penalty": 1e-3}
    chosen = {f.name: value for f, value in parsed(**least).generate.sampling.ListFields()}
    assert set(chosen) == set(least)
    check_params(GenerateParams(sampling=SamplingParams(**chosen)), 100)


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_missing_fields(missing: str) -> None:
    whole = json.loads(body())
    del whole[missing]
    fault = refused(json.dumps(whole).encode())
    assert fault.metadata[PARAM] == missing


def test_pictures_are_a_modality() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    fault = refused(body(messages=[{"role": "user", "content": [part]}]))
    assert fault.reason is Reason.MODALITY_UNSUPPORTED
    assert fault.metadata[PARAM] == "messages[0].content[0]"


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b"", "byte 0"),
        (b'{"model": "m"', "byte 13"),
        (b'{"model": "m",}', "byte 14"),
        (b'{"model": "\xff"}', "byte 11"),
        (b'{"model": NaN}', "byte 10"),
        (body() + b" x", f"byte {len(body()) + 2}"),
    ],
)
def test_malformed_json_says_where(raw: bytes, place: str) -> None:
    fault = refused(raw)
    assert fault.reason is Reason.MALFORMED_JSON
    assert place in fault.message


@pytest.mark.parametrize("raw", [b"[]", b"null", b'"x"', b"[" * 100_000])
def test_a_body_that_is_no_object(raw: bytes) -> None:
    fault = refused(raw)
    assert fault.reason is Reason.INVALID_REQUEST
    assert PARAM not in fault.metadata


def test_deep_nesting_is_refused() -> None:
    raw = b'{"model":"m","messages":[],"metadata":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert refused(raw).reason in (Reason.INVALID_REQUEST, Reason.MALFORMED_JSON)


def test_half_a_surrogate_pair_is_refused() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"\\ud800 x"}]}'
    assert refused(raw).reason is Reason.MALFORMED_JSON


@pytest.mark.parametrize("raw", [b'"\xff"', b"[1,]"])
def test_what_is_not_read_must_still_be_json(raw: bytes) -> None:
    fault = refused(body()[:-1] + b', "tools": ' + raw + b"}")
    assert fault.reason in (Reason.INVALID_REQUEST, Reason.MALFORMED_JSON)


def test_what_is_not_read_costs_nothing() -> None:
    raw = body()[:-1] + b', "metadata": [' + b"[]," * 1_000_000 + b"[]]}"
    tracemalloc.start()
    try:
        parse(raw)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_a_long_name_is_not_repeated_whole() -> None:
    assert len(refused(body(**{"x" * 100_000: 1})).message) < 1000
