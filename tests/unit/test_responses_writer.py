"""llm.v1 answers as Response objects and their events, judged by the official client's types."""

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Served
from edge.responses.body import ResponsesBody
from edge.responses.frame import framed
from edge.responses.objects import ResponseObject
from edge.responses.speech import detail
from edge.responses.writer import Writer

USAGE = pb.Usage(prompt_tokens=7, cached_prompt_tokens=3, completion_tokens=2, reasoning_tokens=1)
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def finish(reason: pb.FinishReason.ValueType = pb.FINISH_REASON_STOP, **more: Any) -> Any:
    timings = pb.Timings(prefill_ms=5, decode_ms=10)
    end = pb.Finish(reason=reason, usage=USAGE, timings=timings)
    return pb.GenerateResponse(finish=end, **more)


def said(text: str, *logprobs: pb.TokenLogprob) -> pb.GenerateResponse:
    return pb.GenerateResponse(text=text, logprobs=logprobs)


def thought(text: str) -> pb.GenerateResponse:
    return pb.GenerateResponse(reasoning=text)


def called(index: int, name: str = "", arguments: str = "") -> pb.GenerateResponse:
    delta = pb.ToolCallDelta(index=index, name=name, arguments_json=arguments)
    if name:
        delta.id = f"call_{index}"
    return pb.GenerateResponse(tool_calls=[delta])


def writer(**fields: Any) -> Writer:
    numbers = itertools.count(1)
    response = framed(ResponsesBody("m", "Hi", **fields), (), "resp_1", 5)
    return Writer(response, lambda prefix: f"{prefix}{next(numbers)}")


def events(raw: bytes) -> list[Any]:
    """The JSON of each event, checked against the types of the official client."""
    parts = raw.decode().split("\n\n")
    assert parts.pop() == ""
    told = []
    for part in parts:
        name, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert EVENT.validate_python(event).type == event["type"]
        if "response" in event:
            Response.model_validate(event["response"])
            msgspec.convert(event["response"], ResponseObject, strict=True)
        told.append(event)
    return told


def answered(*messages: pb.GenerateResponse, **fields: Any) -> tuple[list[Any], Any]:
    """All events of an answer, and its body."""
    it = writer(**fields)
    it.begin(Served("smol-a", 5, queue_wait_ms=4))
    raw = b"".join(it.feed(message) for message in messages) + it.end(9)
    return events(raw), json.loads(it.body())


def brief(event: Any) -> Any:
    """An event as its type and what is new in it."""
    kind = event["type"].removeprefix("response.")
    for field in ("delta", "text", "arguments"):
        if field in event:
            return kind, event["output_index"], event[field]
    if "item" in event:
        return kind, event["output_index"], event["item"]["id"], event["item"].get("status")
    return kind if "part" not in event else (kind, event["output_index"], event["part"]["text"])


def test_a_transcript() -> None:
    told, body = answered(said("Hel"), said("lo"), finish())
    assert [event["sequence_number"] for event in told] == list(range(10))
    assert [brief(event) for event in told] == [
        "created",
        "in_progress",
        ("output_item.added", 0, "msg_1", "in_progress"),
        ("content_part.added", 0, ""),
        ("output_text.delta", 0, "Hel"),
        ("output_text.delta", 0, "lo"),
        ("output_text.done", 0, "Hello"),
        ("content_part.done", 0, "Hello"),
        ("output_item.done", 0, "msg_1", "completed"),
        "completed",
    ]
    assert told[4] == {
        "type": "response.output_text.delta",
        "sequence_number": 4,
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "Hel",
        "logprobs": [],
    }
    assert (told[0]["response"]["status"], told[0]["response"]["output"]) == ("in_progress", [])
    assert told[-1]["response"] == body


def test_thought_message_and_calls_in_their_order() -> None:
    told, body = answered(
        thought("Hm"),
        thought("."),
        said("Look:"),
        called(0, "weather", '{"a"'),
        called(0, arguments=":1}"),
        called(1, "time"),
        finish(pb.FINISH_REASON_TOOL_CALLS),
    )
    assert [brief(event) for event in told[2:-1]] == [
        ("output_item.added", 0, "rs_1", "in_progress"),
        ("content_part.added", 0, ""),
        ("reasoning_text.delta", 0, "Hm"),
        ("reasoning_text.delta", 0, "."),
        ("reasoning_text.done", 0, "Hm."),
        ("content_part.done", 0, "Hm."),
        ("output_item.done", 0, "rs_1", "completed"),
        ("output_item.added", 1, "msg_2", "in_progress"),
        ("content_part.added", 1, ""),
        ("output_text.delta", 1, "Look:"),
        ("output_text.done", 1, "Look:"),
        ("content_part.done", 1, "Look:"),
        ("output_item.done", 1, "msg_2", "completed"),
        ("output_item.added", 2, "fc_3", "in_progress"),
        ("function_call_arguments.delta", 2, '{"a"'),
        ("function_call_arguments.delta", 2, ":1}"),
        ("function_call_arguments.done", 2, '{"a":1}'),
        ("output_item.done", 2, "fc_3", "completed"),
        ("output_item.added", 3, "fc_4", "in_progress"),
        ("function_call_arguments.done", 3, ""),
        ("output_item.done", 3, "fc_4", "completed"),
    ]
    assert [item["type"] for item in body["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert (body["status"], body["output"][2]["call_id"]) == ("completed", "call_0")


def test_a_whole_body() -> None:
    _, body = answered(said("Hey"), finish(), metadata={"k": "v"}, max_output_tokens=9)
    assert Response.model_validate(body).output_text == "Hey"
    assert body["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 9,
    }
    assert (body["metrics"]["queue_wait_ms"], body["metrics"]["prefill_ms"]) == (4, 5)
    assert (body["model"], body["created_at"], body["completed_at"]) == ("smol-a", 5, 9)
    assert (body["metadata"], body["max_output_tokens"]) == ({"k": "v"}, 9)
    assert (body["error"], body["incomplete_details"]) == (None, None)


def test_an_answer_that_was_cut_is_incomplete() -> None:
    told, body = answered(said("Hey"), finish(pb.FINISH_REASON_LENGTH))
    assert told[-1]["type"] == "response.incomplete"
    assert (body["status"], body["completed_at"]) == ("incomplete", None)
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["output"][0]["status"] == "incomplete"


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    told, body = answered(finish())
    assert [brief(event)[0] for event in told[2:-1]] == [
        "output_item.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    assert body["output"][0]["content"][0]["text"] == ""


def test_prefill_progress_opens_the_stream_and_no_more() -> None:
    prefill = pb.GenerateResponse(prefill=pb.PrefillProgress(done_tokens=1, total_tokens=2))
    assert [brief(event) for event in events(writer().feed(prefill))] == ["created", "in_progress"]


def test_logprobs_come_with_their_text_and_once_more_at_the_end() -> None:
    def candidate(text: bytes, logprob: float) -> Any:
        return pb.TokenLogprob.Candidate(token=1, text=text, logprob=logprob)

    first = pb.TokenLogprob(chosen=candidate(b"He", -0.5), top=[candidate(b"\xc3", -1)])
    second = pb.TokenLogprob(chosen=candidate(b"y", -0.25))
    # The text of the second token is held back for a while.
    told, body = answered(said("He", first), said("", second), said("y"), finish())
    deltas = [e for e in told if e["type"] == "response.output_text.delta"]
    assert [[lp["token"] for lp in delta["logprobs"]] for delta in deltas] == [["He"], ["y"], []]
    assert body["output"][0]["content"][0]["logprobs"][0] == {
        "token": "He",
        "logprob": -0.5,
        "bytes": [72, 101],
        "top_logprobs": [{"token": "\ufffd", "logprob": -1, "bytes": [195]}],
    }
    done = next(e for e in told if e["type"] == "response.output_text.done")
    assert [lp["token"] for lp in done["logprobs"]] == ["He", "y"]


def test_one_call_is_all_where_no_more_was_asked_for() -> None:
    calls = (called(0, "a", "{}"), called(1, "b", "{}"), called(2, "c"))
    _, body = answered(*calls, finish(), parallel_tool_calls=False)
    assert [item["name"] for item in body["output"]] == ["a"]
    assert body["parallel_tool_calls"] is False


def test_calls_that_come_mixed_are_a_bug_and_no_garbage() -> None:
    it = writer()
    it.feed(called(0, "a"))
    it.feed(called(1, "b"))
    with pytest.raises(ValueError, match="mixed"):
        it.feed(called(0, arguments="{}"))


@pytest.mark.parametrize("text", ['"quoted"', "a\nb\r\n\n", "data: x\n\n", "é 🙂 \u2028", "\x00"])
def test_any_text_survives_in_one_event(text: str) -> None:
    told, body = answered(said(text), finish())
    assert told[4]["delta"] == body["output"][0]["content"][0]["text"] == text


# What ends otherwise.


def failed(it: Writer, fault: Fault) -> tuple[list[Any], Any]:
    return events(it.fail(fault, detail(fault))), json.loads(it.body())


def test_a_failure_is_told_twice_and_the_response_has_failed() -> None:
    it = writer()
    it.feed(said("Hel"))
    told, body = failed(it, Fault(Reason.ENGINE_CRASHED, "The engine died."))
    assert [event["type"] for event in told] == ["response.failed", "error"]
    assert [event["sequence_number"] for event in told][-1] > 5
    assert told[0]["response"] == body
    assert body["error"] == {"code": "server_error", "message": "The engine died."}
    assert (body["status"], body["output"][0]["status"]) == ("failed", "incomplete")
    assert (told[1]["code"], told[1]["message"]) == ("engine_crashed", "The engine died.")
    # The official client raises for what stands here.
    assert told[1]["error"]["code"] == "engine_crashed"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.QUEUE_FULL, "rate_limit_exceeded"),
        (Reason.CONTEXT_LENGTH_EXCEEDED, "invalid_prompt"),
        (Reason.INTERNAL, "server_error"),
    ],
)
def test_a_failure_before_the_first_message_begins_the_stream(reason: Reason, code: str) -> None:
    told, body = failed(writer(), Fault(reason, "No."))
    assert [event["type"] for event in told] == [
        "response.created",
        "response.in_progress",
        "response.failed",
        "error",
    ]
    assert body["error"]["code"] == code


def test_a_fault_names_fields_as_this_dialect_has_them() -> None:
    for theirs, ours in {
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "response_format.json_schema": "text.format.json_schema",
        "messages[0].content": "input[0].content",
        "max_tokens_of_something": "max_tokens_of_something",
        "tools[0]": "tools[0]",
    }.items():
        fault = Fault(Reason.INVALID_REQUEST, "No.", metadata={"param": theirs})
        assert detail(fault).param == ours


def test_a_cancelled_response_ends_with_an_error_alone() -> None:
    it = writer()
    it.feed(said("Hel"))
    told, body = failed(it, Fault(Reason.CANCELLED, "Cancelled."))
    assert [(event["type"], event["code"]) for event in told] == [("error", "cancelled")]
    assert (body["status"], body["error"]) == ("cancelled", None)
    assert body["output"][0]["content"][0]["text"] == "Hel"


def test_what_is_over_stays_as_it_is() -> None:
    it = writer()
    it.begin(Served("m", 5))
    it.feed(finish(text="Hi"))
    it.end(9)
    before = it.body()
    it.leave()
    it.fail(Fault(Reason.SERVICE_UNAVAILABLE, "Stopping."), detail(Fault(Reason.INTERNAL, "x")))
    assert it.body() == before


def test_a_response_can_be_looked_at_while_it_is_written() -> None:
    it = writer()
    it.feed(thought("Hm"))
    it.feed(said("Hel"))
    body = json.loads(it.body())
    assert (body["status"], body["output"][1]["status"]) == ("in_progress", "in_progress")
    assert body["output"][1]["content"][0]["text"] == "Hel"
    it.feed(said("lo"))
    assert json.loads(it.body())["output"][1]["content"][0]["text"] == "Hello"


def piece(what: str) -> pb.GenerateResponse:
    match what:
        case "thought":
            return thought("t")
        case "call":
            return called(0, "f", "{")
        case _:
            return said(what)


_PIECES = st.lists(st.sampled_from(["thought", "s", "", "call"]), max_size=12)


@given(_PIECES)
def test_any_stream_keeps_the_order(pieces: list[str]) -> None:
    # An engine names a call once.
    row = [p for i, p in enumerate(pieces) if p != "call" or "call" not in pieces[:i]]
    told, body = answered(*map(piece, row), finish())
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    open_at = -1
    for event in told:
        kind = event["type"]
        if kind == "response.output_item.added":
            open_at = open_at + 1
            assert event["output_index"] == open_at
        elif "output_index" in event:
            assert event["output_index"] == open_at
    done = [e["item"] for e in told if e["type"] == "response.output_item.done"]
    assert done == body["output"]
    for item, index in zip(body["output"], itertools.count(), strict=False):
        deltas = [e["delta"] for e in told if "delta" in e and e["output_index"] == index]
        whole = item["arguments"] if "arguments" in item else item["content"][0]["text"]
        assert "".join(deltas) == whole
