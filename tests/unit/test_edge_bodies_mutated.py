"""Bodies of the text dialects with something wrong in them: answered or refused, never a bug."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from edge import chat_request, completions_request, legacy_request

CHAT = {
    "model": "m",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a", "target_lang_code": "en"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "chat_template_kwargs": {"enable_thinking": True},
    "reasoning_effort": "low",
    "logprobs": True,
    "top_logprobs": 2,
    "logit_bias": {"1": 1},
    "stop": ["a"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "functions": [],
}
COMPLETION = {"model": "m", "prompt": ["a"], "suffix": "x", "n": 2, "best_of": 2, "echo": False}
GENERATE = {"text": "a", "stop_sequences": ["a"], "seed": 1, "enable_thinking": True}
BODIES: list[tuple[Any, Callable[[bytes], Any]]] = [
    (CHAT, chat_request.parse),
    (COMPLETION, completions_request.parse),
    (GENERATE, legacy_request.parse_generate),
]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from(["a" * 300, "auto", "required", "function", "text", "{", "[1]", "\x00"]),
    st.sampled_from([[], {}, [[]], [{}], [None], [1, 2], ["a"] * 70, {"type": "function"}]),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in `value`, at any depth."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        yield (*at, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*at, key))


def fault_of(parse: Callable[[bytes], Any], body: bytes) -> Fault | None:
    try:
        parse(body)
    except Fault as fault:
        return fault
    return None


@pytest.mark.parametrize(("body", "parse"), BODIES, ids=["chat", "completion", "generate"])
@given(data=st.data())
def test_whatever_stands_in_a_field(body: Any, parse: Callable[[bytes], Any], data: Any) -> None:
    wrong = copy.deepcopy(body)
    *above, last = data.draw(st.sampled_from(list(places(body))))
    holder = wrong
    for key in above:
        holder = holder[key]
    holder[last] = data.draw(ODD)
    fault = fault_of(parse, json.dumps(wrong).encode())
    if fault is not None:
        assert fault.reason in (Reason.INVALID_REQUEST, Reason.MODALITY_UNSUPPORTED)
        assert fault.message.endswith(".")
        assert len(fault.message) < 600


@pytest.mark.parametrize(("body", "parse"), BODIES, ids=["chat", "completion", "generate"])
def test_nothing_wrong_is_answered(body: Any, parse: Callable[[bytes], Any]) -> None:
    assert fault_of(parse, json.dumps(body).encode()) is None
