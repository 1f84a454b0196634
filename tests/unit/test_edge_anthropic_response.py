"""llm.v1 answers as Anthropic's events and messages: golden sequences, and the two alike."""

import json
from typing import Any, Union

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.anthropic.events import STREAM_EVENTS, Stream
from edge.anthropic.response import SIGNATURE, Collected, MessageAnswer, Shown

USAGE = pb.Usage(prompt_tokens=7, cached_prompt_tokens=3, completion_tokens=2, reasoning_tokens=1)
USAGE_JSON = {
    "input_tokens": 4,
    "output_tokens": 2,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 3,
    "output_tokens_details": {"thinking_tokens": 1},
}
SHOWN = Shown()
_decoder = msgspec.json.Decoder(Union[STREAM_EVENTS])  # noqa: UP007 - of a tuple


def served() -> Served:
    return Served('a"b%s', 5, queue_wait_ms=3)


def say(text: str = "", thought: str = "", *calls: pb.ToolCallDelta) -> pb.GenerateResponse:
    return pb.GenerateResponse(text=text, reasoning=thought, tool_calls=calls)


def call(index: int, said: str = "", name: str = "") -> pb.ToolCallDelta:
    return pb.ToolCallDelta(
        index=index, id=f"t{index}" if name else "", name=name, arguments_json=said
    )


def finish(
    reason: pb.FinishReason.ValueType = pb.FINISH_REASON_STOP, stop: str = "", **more: Any
) -> pb.GenerateResponse:
    return pb.GenerateResponse(finish=pb.Finish(reason=reason, usage=USAGE, stop=stop), **more)


def events(raw: bytes) -> list[Any]:
    """The data of each event, checked against its name and the struct that /openapi.json shows."""
    parts = raw.decode().split("\n\n")
    assert parts.pop() == ""
    told: list[Any] = []
    for part in parts:
        name, data = part.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        told.append(json.loads(data[6:]))
        assert told[-1]["type"] == name[7:]
        _decoder.decode(data[6:])
    return told


def writes(*messages: pb.GenerateResponse, shown: Shown = SHOWN) -> list[list[Any]]:
    writer = Stream("msg_1", served(), shown)
    return [events(writer.feed(message)) for message in messages] + [events(writer.end())]


def stream(*messages: pb.GenerateResponse, shown: Shown = SHOWN) -> list[Any]:
    return [event for write in writes(*messages, shown=shown) for event in write]


def whole(*messages: pb.GenerateResponse, shown: Shown = SHOWN) -> Any:
    collected = Collected("msg_1", served(), shown)
    for message in messages:
        collected.feed(message)
    raw = collected.body()
    msgspec.json.decode(raw, type=MessageAnswer)
    return json.loads(raw)


def put_together(told: list[Any]) -> tuple[list[Any], Any]:
    """The blocks and the last delta of a stream, by the rules of the dialect."""
    assert [event["type"] for event in (told[0], *told[-2:])] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    blocks: list[Any] = []
    is_open = False
    for event in told[1:-2]:
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == len(blocks)
            blocks.append({**event["content_block"], "json": ""})
            is_open = True
            continue
        assert is_open
        assert event["index"] == len(blocks) - 1
        if event["type"] == "content_block_stop":
            is_open = False
            continue
        delta = dict(event["delta"])
        kind = delta.pop("type").removesuffix("_delta")
        ((_, said),) = delta.items()
        key = {"input_json": "json"}.get(kind, kind)
        blocks[-1][key] += said
    assert not is_open
    for block in blocks:
        said = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(said or "{}")
    return blocks, told[-2]


def test_a_transcript_of_text() -> None:
    told = writes(say("Hi"), say(" there"), finish())
    start, block, first = told[0]
    assert start == {
        "type": "message_start",
        "message": {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "model": 'a"b%s',
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 0,
                "output_tokens": 0,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens_details": None,
            },
        },
    }
    assert block == {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }

    def delta(said: str) -> dict[str, Any]:
        return {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": said},
        }

    assert first == delta("Hi")
    assert told[1] == [delta(" there")]
    closed, stopped = told[2]
    assert closed == {"type": "content_block_stop", "index": 0}
    assert stopped.pop("metrics")["queue_wait_ms"] == 3
    assert stopped == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": USAGE_JSON,
    }
    assert told[3] == [{"type": "message_stop"}]


def test_a_transcript_of_thoughts_text_and_calls() -> None:
    told = stream(
        say(thought="Hm"),
        say("Look", "."),
        say("", "", call(0, name="weather")),
        say("", "", call(0, '{"city":'), call(0, '"Ghent"}'), call(1, "{}", name="time")),
        finish(pb.FINISH_REASON_TOOL_CALLS),
    )
    named = [(event["type"], event.get("index")) for event in told]
    delta = "content_block_delta"
    assert named == [
        ("message_start", None),
        ("content_block_start", 0),
        (delta, 0),
        (delta, 0),
        (delta, 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        (delta, 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        (delta, 2),
        (delta, 2),
        ("content_block_stop", 2),
        ("content_block_start", 3),
        (delta, 3),
        ("content_block_stop", 3),
        ("message_delta", None),
        ("message_stop", None),
    ]
    assert told[4]["delta"] == {"type": "signature_delta", "signature": SIGNATURE}
    assert told[9]["content_block"] == {
        "type": "tool_use",
        "id": "t0",
        "name": "weather",
        "input": {},
    }
    assert told[10]["delta"] == {"type": "input_json_delta", "partial_json": '{"city":'}
    assert told[-2]["delta"]["stop_reason"] == "tool_use"


def test_the_length_of_the_prompt_is_told_first_when_it_is_known() -> None:
    prefill = pb.GenerateResponse(prefill=pb.PrefillProgress(done_tokens=1, total_tokens=9))
    told = writes(prefill, say("a"), finish())
    assert told[0] == []
    assert told[1][0]["message"]["usage"]["input_tokens"] == 9


def test_an_answer_of_nothing_has_no_blocks() -> None:
    assert [event["type"] for event in stream(finish())] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    assert whole(finish())["content"] == []


@pytest.mark.parametrize(
    ("reason", "stop", "word", "sequence"),
    [
        (pb.FINISH_REASON_STOP, "", "end_turn", None),
        (pb.FINISH_REASON_STOP, "END", "stop_sequence", "END"),
        (pb.FINISH_REASON_LENGTH, "", "max_tokens", None),
        (pb.FINISH_REASON_TOOL_CALLS, "", "tool_use", None),
    ],
)
def test_why_it_ended(reason: Any, stop: str, word: str, sequence: str | None) -> None:
    last = stream(say("a"), finish(reason, stop))[-2]["delta"]
    assert last == {"stop_reason": word, "stop_sequence": sequence}
    answer = whole(say("a"), finish(reason, stop))
    assert (answer["stop_reason"], answer["stop_sequence"]) == (word, sequence)


def test_thoughts_that_are_not_wished_for_leave_their_signature() -> None:
    shown = Shown(thinking=False)
    expected = [
        {"type": "thinking", "thinking": "", "signature": SIGNATURE},
        {"type": "text", "text": "a"},
    ]
    said = (say(thought="Secret"), say("a"), finish())
    assert put_together(stream(*said, shown=shown))[0] == expected
    assert whole(*said, shown=shown)["content"] == expected


def test_one_call_only_cuts_the_others() -> None:
    said = (
        say("", "", call(0, "{}", name="a"), call(1, '{"x"', name="b")),
        say("", "", call(1, ":1}")),
        finish(pb.FINISH_REASON_TOOL_CALLS),
    )
    shown = Shown(one_call_only=True)
    (block,), _ = put_together(stream(*said, shown=shown))
    assert block["name"] == "a"
    assert whole(*said, shown=shown)["content"] == [block]
    assert len(whole(*said)["content"]) == 2


@pytest.mark.parametrize("said", ["", '{"city": "Gh', "[1]", "{" * 5000])
def test_a_call_cut_short_is_still_a_message(said: str) -> None:
    answer = whole(say("", "", call(0, said, name="a")), finish(pb.FINISH_REASON_LENGTH))
    assert answer["content"][0]["input"] == {}
    assert answer["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("said", ['"quoted"', "a\nb\r\n\n", "event: x\n\n", "é 🙂 \u2028", "\x00"])
def test_any_text_survives_in_one_event(said: str) -> None:
    told = stream(say(said), finish())
    assert told[2]["delta"]["text"] == said


_words = st.text(max_size=4)
_spoken = st.lists(
    st.one_of(
        st.builds(say, _words, _words),
        st.integers(0, 3).map(lambda i: say("", "", call(i, '{"a":1}', name="f"))),
    ),
    max_size=8,
)


def _in_order(messages: list[pb.GenerateResponse]) -> list[pb.GenerateResponse]:
    # A model makes its calls one after the other, each once.
    index = 0
    for message in messages:
        for one in message.tool_calls:
            one.index, one.id = index, f"t{index}"
            index += 1
    return messages


@given(_spoken, st.booleans(), st.booleans())
def test_a_stream_says_what_the_whole_says(
    spoken: list[pb.GenerateResponse], thinking: bool, one_call_only: bool
) -> None:
    said, shown = [*_in_order(spoken), finish()], Shown(thinking, one_call_only)
    blocks, last = put_together(stream(*said, shown=shown))
    answer = whole(*said, shown=shown)
    assert blocks == answer["content"]
    assert last["usage"] == answer["usage"] == USAGE_JSON
    assert last["metrics"] == answer["metrics"]
