"""llm.v1 answers as OpenAI's events and bodies, byte for byte where bytes are built by hand."""

import json
from typing import Any

import msgspec
import pytest

from cohabit.llm.v1 import llm_pb2 as pb
from edge.chat_response import ChatCompletion, ChatCompletionChunk, Collected, Stream

USAGE = pb.Usage(prompt_tokens=7, cached_prompt_tokens=3, completion_tokens=2, reasoning_tokens=1)
USAGE_JSON = {
    "prompt_tokens": 7,
    "completion_tokens": 2,
    "total_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 1},
}


def finish(reason: pb.FinishReason.ValueType = pb.FINISH_REASON_STOP, **more: Any) -> Any:
    return pb.GenerateResponse(finish=pb.Finish(reason=reason, usage=USAGE), **more)


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


def stream(*messages: pb.GenerateResponse, include_usage: bool = False) -> list[list[Any]]:
    """The events of each write."""
    writer = Stream("chatcmpl-1", 5, 'a"b%s', include_usage=include_usage)
    return [events(writer.feed(message)) for message in messages] + [events(writer.end())]


def test_a_transcript_without_usage() -> None:
    writes = stream(pb.GenerateResponse(text="Hi"), finish())
    base = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": 'a"b%s',
        "system_fingerprint": None,
    }

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**base, "choices": [choice]}

    assert writes == [
        [chunk({"role": "assistant", "content": "", "refusal": None}), chunk({"content": "Hi"})],
        [chunk({}, "stop")],
        ["[DONE]"],
    ]


def test_a_transcript_with_usage() -> None:
    writes = stream(pb.GenerateResponse(text="Hi"), finish(), include_usage=True)
    chunks = [event for write in writes for event in write]
    assert chunks.pop() == "[DONE]"
    last = chunks.pop()
    assert (last["choices"], last["usage"]) == ([], USAGE_JSON)
    assert [chunk["usage"] for chunk in chunks] == [None] * 3


def test_one_message_is_one_write() -> None:
    (write, _) = stream(finish(text="Hi", reasoning="Hm"))
    assert [event["choices"][0]["delta"] for event in write] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"reasoning_content": "Hm"},
        {"content": "Hi"},
        {},
    ]


def test_prefill_progress_says_nothing_yet() -> None:
    prefill = pb.GenerateResponse(prefill=pb.PrefillProgress(done_tokens=1, total_tokens=2))
    writes = stream(prefill, finish())
    assert writes[0] == []
    assert writes[1][0]["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize(
    "said", ['"quoted"', "a\nb\r\n\n", "data: [DONE]\n\n", "é 🙂 \u2028", "\x00"]
)
def test_any_text_survives_in_one_event(said: str) -> None:
    (write, _, _) = stream(pb.GenerateResponse(text=said), finish())
    assert write[1]["choices"][0]["delta"] == {"content": said}


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


def test_a_whole_answer() -> None:
    collected = Collected("chatcmpl-1", 5, "m")
    for message in (pb.GenerateResponse(text="He", reasoning="Hm"), finish(text="y")):
        collected.feed(message)
    raw = collected.body()
    msgspec.json.decode(raw, type=ChatCompletion)
    assert json.loads(raw) == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 5,
        "model": "m",
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
        "system_fingerprint": None,
    }
