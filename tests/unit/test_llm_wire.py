"""Requests of the contract as the engine's values: nothing that was asked for is lost unsaid."""

from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from services.llm.engine_llama import INLINE_CHARS
from services.llm.prompts import chars_of
from services.llm.values import ChatMessage, Conversation, Role
from services.llm.wire import prompt_of

Talk = pb.GenerateRequest.Conversation
Choice = pb.ToolChoice


def message(role: pb.Role.ValueType = pb.ROLE_USER, text: str = "hi", **fields: Any) -> pb.Message:
    return pb.Message(role=role, content=[pb.ContentPart(text=text)], **fields)


def request(*messages: pb.Message, **fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(conversation=Talk(messages=messages, **fields))


def test_a_conversation_keeps_what_was_thought() -> None:
    thought = message(pb.ROLE_ASSISTANT, "yes", reasoning="because", name="Ada")
    assert prompt_of(request(message(), thought)) == Conversation(
        (
            ChatMessage(Role.USER, "hi"),
            ChatMessage(Role.ASSISTANT, "yes", name="Ada", reasoning="because"),
        )
    )


@pytest.mark.parametrize(
    "asked",
    [
        request(message(), tool_choice=Choice(mode=Choice.MODE_REQUIRED)),
        request(message(), tool_choice=Choice(mode=Choice.MODE_NAMED, name="f")),
        request(
            message(),
            tools=[pb.Tool(name="f")],
            tool_choice=Choice(mode=Choice.MODE_NAMED, name="g"),
        ),
        request(message(), tools=[pb.Tool(name="f"), pb.Tool(name="f")]),
        request(message(), tools=[pb.Tool(name="f", parameters_json="[]")]),
        request(message(tool_call_id="1")),
        request(message(tool_calls=[pb.ToolCall(id="1")])),
    ],
)
def test_tools_that_make_no_sense_are_refused(asked: pb.GenerateRequest) -> None:
    with pytest.raises(Fault) as caught:
        prompt_of(asked)
    assert caught.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize("mode", [Choice.MODE_UNSPECIFIED, Choice.MODE_NONE, Choice.MODE_AUTO])
def test_a_choice_that_demands_no_tool_is_granted(mode: pb.ToolChoice.Mode.ValueType) -> None:
    assert prompt_of(request(message(), tool_choice=Choice(mode=mode)))


@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(message(pb.ROLE_UNSPECIFIED)),
        request(message(reasoning="only models think aloud")),
    ],
)
def test_what_makes_no_sense_is_refused(asked: pb.GenerateRequest) -> None:
    with pytest.raises(Fault) as caught:
        prompt_of(asked)
    assert caught.value.reason is Reason.INVALID_REQUEST


def test_many_messages_are_long_however_short_each_is() -> None:
    few, many = (Conversation((ChatMessage(Role.USER, ""),) * n) for n in (10, 10_000))
    assert chars_of(few) <= INLINE_CHARS < chars_of(many)
    assert (
        chars_of(Conversation((ChatMessage(Role.ASSISTANT, "", "", "x" * 20_000),))) > INLINE_CHARS
    )
