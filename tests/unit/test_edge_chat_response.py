"""llm.v1 answers as OpenAI's events and bodies, byte for byte where bytes are built by hand."""

import json
from typing import Any

import msgspec
import pytest

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.chat_response import ChatCompletion, ChatCompletionChunk
from edge.chat_writers import Collected, Stream

SERVED = Served('a"b%s', 5, queue_wait_ms=9)
USAGE = pb.Usage(prompt_tokens=7, cached_prompt_tokens=3, completion_tokens=2, reasoning_tokens=1)
USAGE_JSON = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
SPENT = pb.Timings(prefill_ms=20, first_token_ms=30, decode_ms=50)
METRICS_JSON = {
    "queue_wait_ms": 9,
    "tokenize_ms": 0,
    "engine_wait_ms": 0,
    "prefill_ms": 20,
    "first_token_ms": 30,
    "decode_ms": 50,
    "tokens_per_second": 20,
}
ROLE = {"role": "assistant", "content": "", "refusal": None}
SILENT_ROLE = {"role": "assistant", "content": None, "refusal": None}


def said(text: str, choice: int = 0, **more: Any) -> pb.GenerateResponse:
    return pb.GenerateResponse(text=text, choice=choice, **more)


def finish(reason: pb.FinishReason.ValueType = pb.FINISH_REASON_STOP, **more: Any) -> Any:
    return pb.GenerateResponse(finish=pb.Finish(reason=reason, usage=USAGE, timings=SPENT), **more)


def call(index: int, arguments: str, name: str = "") -> pb.ToolCallDelta:
    first = {"id": f"call_{index}", "name": name} if name else {}
    return pb.ToolCallDelta(index=index, arguments_json=arguments, **first)


def likely(text: bytes, logprob: float, *top: bytes) -> pb.TokenLogprob:
    candidate = pb.TokenLogprob.Candidate
    return pb.TokenLogprob(
        chosen=candidate(text=text, logprob=logprob),
        top=[candidate(text=other, logprob=logprob) for other in top],
    )


CALLS = [
    pb.GenerateResponse(tool_calls=[call(0, "", "f"), call(1, "", "g")]),
    pb.GenerateResponse(tool_calls=[call(0, '{"a":'), call(1, "{}")]),
    pb.GenerateResponse(tool_calls=[call(0, "1}")]),
    finish(pb.FINISH_REASON_TOOL_CALLS),
]


def events(raw: bytes) -> list[Any]:
    """The JSON of each event, checked against the struct that /openapi.json shows."""
    parts = raw.decode().split("\n\n")
    assert parts.pop() == ""
    told: list[Any] = []
    for part in parts:
        data = part.removeprefix("data: ")
        assert data != part
        if data != "[DONE]":
            msgspec.json.decode(data, type=ChatCompletionChunk, strict=True)
        told.append(data if data == "[DONE]" else json.loads(data))
    return told


def stream(
    *messages: pb.GenerateResponse, include_usage: bool = False, parallel: bool = True
) -> list[list[Any]]:
    """The events of each write."""
    writer = Stream("chatcmpl-1", SERVED, include_usage=include_usage, parallel=parallel)
    return [events(writer.feed(message)) for message in messages] + [events(writer.end())]


def deltas(writes: list[list[Any]]) -> list[Any]:
    return [e["choices"][0]["delta"] for write in writes for e in write if e != "[DONE]"]


def whole(*messages: pb.GenerateResponse, parallel: bool = True) -> Any:
    collected = Collected("chatcmpl-1", SERVED, parallel=parallel)
    for message in messages:
        collected.feed(message)
    raw = collected.body()
    msgspec.json.decode(raw, type=ChatCompletion)
    return json.loads(raw)


def test_a_transcript_without_usage() -> None:
    writes = stream(said("Hi"), finish())
    base = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": 'a"b%s',
        "system_fingerprint": None,
    }

    def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**base, "choices": [choice], **more}

    assert writes == [
        [chunk(ROLE), chunk({"content": "Hi"})],
        [chunk({}, "stop", metrics=METRICS_JSON)],
        ["[DONE]"],
    ]


def test_a_transcript_with_usage() -> None:
    writes = stream(said("Hi"), finish(), include_usage=True)
    chunks = [event for write in writes for event in write]
    assert chunks.pop() == "[DONE]"
    last = chunks.pop()
    assert (last["choices"], last["usage"]) == ([], USAGE_JSON)
    assert last["metrics"] == METRICS_JSON
    assert [chunk["usage"] for chunk in chunks] == [None] * 3
    assert not any("metrics" in chunk for chunk in chunks)


def test_one_message_is_one_write() -> None:
    (write, _) = stream(finish(text="Hi", reasoning="Hm"))
    assert deltas([write]) == [ROLE, {"reasoning_content": "Hm"}, {"content": "Hi"}, {}]


def test_prefill_progress_says_nothing_yet() -> None:
    prefill = pb.GenerateResponse(prefill=pb.PrefillProgress(done_tokens=1, total_tokens=2))
    writes = stream(prefill, finish())
    assert writes[0] == []
    assert deltas(writes)[0] == ROLE


@pytest.mark.parametrize(
    "text", ['"quoted"', "a\nb\r\n\n", "data: [DONE]\n\n", "é 🙂 \u2028", "\x00"]
)
def test_any_text_survives_in_one_event(text: str) -> None:
    (write, _, _) = stream(said(text), finish())
    assert write[1]["choices"][0]["delta"] == {"content": text}


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        (pb.FINISH_REASON_STOP, "stop"),
        (pb.FINISH_REASON_LENGTH, "length"),
        (pb.FINISH_REASON_TOOL_CALLS, "tool_calls"),
    ],
)
def test_finish_reasons(reason: pb.FinishReason.ValueType, word: str) -> None:
    (write, _) = stream(finish(reason))
    assert write[-1]["choices"][0]["finish_reason"] == word


def test_tool_calls_come_in_pieces_with_id_and_name_in_the_first() -> None:
    first = {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": ""}}
    other = {"id": "call_1", "type": "function", "function": {"name": "g", "arguments": ""}}
    assert deltas(stream(*CALLS)) == [
        SILENT_ROLE,
        {"tool_calls": [{"index": 0, **first}, {"index": 1, **other}]},
        {
            "tool_calls": [
                {"index": 0, "function": {"arguments": '{"a":'}},
                {"index": 1, "function": {"arguments": "{}"}},
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
        {},
    ]


def test_without_parallel_calls_the_first_is_the_only_one() -> None:
    told = [
        piece["index"]
        for delta in deltas(stream(*CALLS, parallel=False))
        for piece in delta.get("tool_calls", ())
    ]
    assert told == [0, 0, 0]
    (choice,) = whole(*CALLS, parallel=False)["choices"]
    assert [made["id"] for made in choice["message"]["tool_calls"]] == ["call_0"]


def test_choices_interleave_and_each_begins_with_its_role() -> None:
    writes = stream(said("a"), said("b", 1), said("c"), finish(choice=1), finish())
    told = [
        (e["choices"][0]["index"], e["choices"][0]["delta"], e["choices"][0]["finish_reason"])
        for write in writes[:-1]
        for e in write
    ]
    assert told == [
        (0, ROLE, None),
        (0, {"content": "a"}, None),
        (1, ROLE, None),
        (1, {"content": "b"}, None),
        (0, {"content": "c"}, None),
        (1, {}, "stop"),
        (0, {}, "stop"),
    ]


def test_usage_counts_the_prompt_once_and_every_completion() -> None:
    other = pb.Usage(prompt_tokens=7, cached_prompt_tokens=7, completion_tokens=5)
    ends = pb.Finish(reason=pb.FINISH_REASON_LENGTH, usage=other)
    second = pb.GenerateResponse(choice=1, finish=ends)
    (*_, last) = stream(second, finish(), include_usage=True)
    assert last[0]["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 7,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert whole(second, finish())["usage"] == last[0]["usage"]


def test_logprobs_stand_in_the_first_event_of_their_message() -> None:
    tokens = [likely(b"H", -0.5, b"H", b"\xe2\x80"), likely(b"i", float("-inf"))]
    writes = stream(said("Hi", logprobs=tokens, reasoning="Hm"), finish())
    told = [e["choices"][0]["logprobs"] for write in writes[:-1] for e in write]
    expected = {
        "content": [
            {
                "token": "H",
                "logprob": -0.5,
                "bytes": [72],
                "top_logprobs": [
                    {"token": "H", "logprob": -0.5, "bytes": [72]},
                    {"token": "�", "logprob": -0.5, "bytes": [226, 128]},
                ],
            },
            {"token": "i", "logprob": -9999.0, "bytes": [105], "top_logprobs": []},
        ],
        "refusal": None,
    }
    assert told == [None, expected, None, None]
    (choice,) = whole(said("Hi", logprobs=tokens), finish())["choices"]
    assert choice["logprobs"] == expected


def test_logprobs_of_tokens_without_text_are_not_lost() -> None:
    writes = stream(pb.GenerateResponse(logprobs=[likely(b"\xe2", -1)]), finish())
    assert deltas(writes) == [ROLE, {"content": ""}, {}]
    assert len(writes[0][1]["choices"][0]["logprobs"]["content"]) == 1


def test_a_whole_answer() -> None:
    assert whole(said("He", reasoning="Hm"), finish(text="y")) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 5,
        "model": 'a"b%s',
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hey",
                    "refusal": None,
                    "reasoning_content": "Hm",
                },
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": USAGE_JSON,
        "metrics": METRICS_JSON,
        "system_fingerprint": None,
    }


def test_a_whole_answer_of_tool_calls_alone_has_no_content() -> None:
    (choice,) = whole(*CALLS)["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"] == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "call_1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }


def test_several_choices_are_in_order() -> None:
    told = whole(said("b", 1), said("a"), finish(choice=1), finish())["choices"]
    assert [(c["index"], c["message"]["content"]) for c in told] == [(0, "a"), (1, "b")]


def test_an_empty_answer_is_empty_text() -> None:
    (choice,) = whole(finish())["choices"]
    assert choice["message"]["content"] == ""
