"""Tools, formats, thinking and turns of OpenAI's chat dialect, in llm.v1."""

import json
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.chat_request import ChatRequest, parse
from edge.speech import PARAM

USER = {"role": "user", "content": "Hello"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
NAMED = {"type": "function", "function": {"name": "weather"}}


def parsed(**fields: Any) -> ChatRequest:
    return parse(json.dumps({"model": "m", "messages": [USER], **fields}).encode())


def refused(**fields: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        parsed(**fields)
    return caught.value


def test_tools_keep_their_schema_as_it_was_written() -> None:
    bare = {"type": "function", "function": {"name": "now", "description": "The time."}}
    strict = {"type": "function", "function": {"name": "x", "parameters": None, "strict": True}}
    tools = parsed(tools=[TOOL, bare, strict]).generate.conversation.tools
    assert [tool.name for tool in tools] == ["weather", "now", "x"]
    assert tools[0].parameters_json == json.dumps(SCHEMA)
    assert (tools[1].parameters_json, tools[1].description) == ("", "The time.")
    assert tools[2].parameters_json == ""


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("none", pb.ToolChoice(mode=pb.ToolChoice.MODE_NONE)),
        ("auto", pb.ToolChoice(mode=pb.ToolChoice.MODE_AUTO)),
        ("required", pb.ToolChoice(mode=pb.ToolChoice.MODE_REQUIRED)),
        (NAMED, pb.ToolChoice(mode=pb.ToolChoice.MODE_NAMED, name="weather")),
    ],
)
def test_tool_choices(choice: Any, expected: pb.ToolChoice) -> None:
    talk = parsed(tools=[TOOL], tool_choice=choice).generate.conversation
    assert talk.tool_choice == expected


@pytest.mark.parametrize(("wish", "allowed"), [({}, True), ({"parallel_tool_calls": False}, False)])
def test_parallel_calls_are_allowed_unless_refused(wish: dict[str, Any], allowed: bool) -> None:
    assert parsed(tools=[TOOL], **wish).parallel_tool_calls is allowed


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"type": "json_object"}, pb.OutputConstraint(json_object=True)),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
            pb.OutputConstraint(json_schema=json.dumps(SCHEMA)),
        ),
        (
            {"type": "grammar", "grammar": 'root ::= "x"'},
            pb.OutputConstraint(grammar='root ::= "x"'),
        ),
        ({"type": "regex", "regex": "[ab]+"}, pb.OutputConstraint(regex="[ab]+")),
    ],
)
def test_formats(wish: dict[str, Any], expected: pb.OutputConstraint) -> None:
    assert parsed(response_format=wish).generate.output == expected


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "text"}}])
def test_text_is_no_constraint(fields: dict[str, Any]) -> None:
    assert not parsed(**fields).generate.HasField("output")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, pb.THINKING_UNSPECIFIED),
        ({"reasoning_effort": "none"}, pb.THINKING_DISABLED),
        ({"reasoning_effort": "minimal"}, pb.THINKING_DISABLED),
        ({"reasoning_effort": "low"}, pb.THINKING_ENABLED),
        ({"reasoning_effort": "max"}, pb.THINKING_ENABLED),
        ({"chat_template_kwargs": {"enable_thinking": False}}, pb.THINKING_DISABLED),
        ({"chat_template_kwargs": {"enable_thinking": True}}, pb.THINKING_ENABLED),
        ({"thinking": "disabled"}, pb.THINKING_DISABLED),
        ({"thinking": "enabled", "reasoning_effort": "high"}, pb.THINKING_ENABLED),
        ({"thinking": "default", "reasoning_effort": "none"}, pb.THINKING_DISABLED),
    ],
)
def test_thinking_is_wished_in_three_ways(fields: dict[str, Any], expected: int) -> None:
    assert parsed(**fields).generate.thinking == expected


def test_a_conversation_with_tools_and_their_answers() -> None:
    empty = {"id": "call_2", "function": {"name": "g", "arguments": " "}, "index": 1}
    turns = parsed(
        messages=[
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL, empty]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "5"}]},
        ]
    ).generate.conversation.messages
    assert list(turns[1].tool_calls) == [
        pb.ToolCall(id="call_1", name="f", arguments_json='{"a": 1}'),
        pb.ToolCall(id="call_2", name="g", arguments_json="{}"),
    ]
    assert not turns[1].content
    assert (turns[2].role, turns[2].tool_call_id) == (pb.ROLE_TOOL, "call_1")
    assert turns[2].content[0].text == "5"


@pytest.mark.parametrize(
    ("source", "told"), [("cs", "cs"), (None, ""), ("auto", ""), ("mixed", "")]
)
def test_a_text_to_translate(source: str | None, told: str) -> None:
    part = {
        "type": "text",
        "text": "Ahoj",
        "source_lang_code": source,
        "target_lang_code": "pt-BR",
    }
    (turn,) = parsed(messages=[{"role": "user", "content": [part]}]).generate.conversation.messages
    translation = pb.ContentPart.Translation(
        text="Ahoj", source_lang_code=told, target_lang_code="pt-BR"
    )
    assert list(turn.content) == [pb.ContentPart(translation=translation)]


@pytest.mark.parametrize("more", [{}, {"add_generation_prompt": False}])
def test_the_last_message_can_be_continued(more: dict[str, Any]) -> None:
    messages = [USER, {"role": "assistant", "content": "I am"}]
    talk = parsed(messages=messages, continue_final_message=True, **more).generate.conversation
    assert talk.continue_last
    assert not parsed(messages=messages).generate.conversation.continue_last


def turn(**fields: Any) -> dict[str, Any]:
    return {"messages": [USER, fields]}


def called(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return turn(role="assistant", tool_calls=[call])


def part(**fields: Any) -> dict[str, Any]:
    return turn(role="user", content=[fields])


CONTENT = "messages[1].content[0]"
ARGUMENTS = "messages[1].tool_calls[0].function.arguments"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [TOOL] * 129}, "tools"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}]},
        "tools[0].function.parameters",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "any", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": NAMED}, "tool_choice"),
    ({"tool_choice": {"type": "function"}, "tools": [TOOL]}, "tool_choice.function"),
    (
        {"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": [TOOL]},
        "tool_choice.function.name",
    ),
    (
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}, "tools": [TOOL]},
        "tool_choice.type",
    ),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": 3}}},
        "response_format.json_schema.schema",
    ),
    ({"response_format": {"type": "grammar", "grammar": ""}}, "response_format.grammar"),
    ({"response_format": {"type": "regex"}}, "response_format.regex"),
    ({"reasoning_effort": "some"}, "reasoning_effort"),
    ({"thinking": "on"}, "thinking"),
    ({"thinking": "enabled", "reasoning_effort": "none"}, "thinking"),
    (
        {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "none"},
        "chat_template_kwargs",
    ),
    ({"chat_template_kwargs": {"other": 1}}, "chat_template_kwargs.other"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"add_generation_prompt": False}, "add_generation_prompt"),
    (
        {
            "continue_final_message": True,
            "add_generation_prompt": True,
            "messages": [{"role": "assistant", "content": "x"}],
        },
        "add_generation_prompt",
    ),
    (
        {
            "continue_final_message": True,
            "messages": [{"role": "assistant", "content": "x", "tool_calls": [CALL]}],
        },
        "continue_final_message",
    ),
    (turn(role="tool", content="5"), "messages[1].tool_call_id"),
    (turn(role="user", content="5", tool_call_id="c"), "messages[1].tool_call_id"),
    (turn(role="user", content="5", tool_calls=[CALL]), "messages[1].tool_calls"),
    (turn(role="tool", tool_call_id="c"), "messages[1].content"),
    (turn(role="assistant", tool_calls=[{}]), "messages[1].tool_calls[0].id"),
    (called("[1]"), ARGUMENTS),
    (called("{"), ARGUMENTS),
    (called('{"a": "\\ud800"}'), ARGUMENTS),
    (called('{"a":' * 100_000), ARGUMENTS),
    (part(type="text", text="x", source_lang_code="cs"), f"{CONTENT}.target_lang_code"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[str(f)[:60] for f, _ in REFUSED])
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    fault = refused(**fields)
    assert fault.reason is Reason.INVALID_REQUEST
    assert fault.metadata[PARAM] == param
    assert param.rsplit(".", 1)[-1] in fault.message
    assert fault.message.endswith(".")


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_other_modalities_are_refused_as_such(kind: str) -> None:
    fault = refused(**part(type=kind))
    assert fault.reason is Reason.MODALITY_UNSUPPORTED
    assert fault.metadata[PARAM] == CONTENT


@pytest.mark.parametrize("raw", [b'{"a": "\\ud800"}', b'{"a": "\xff"}', b'{"a":' * 100_000])
def test_a_schema_that_would_break_its_reader_is_refused(raw: bytes) -> None:
    depth = raw.count(b"{")
    schema = raw + (b"1" + b"}" * depth if depth > 1 else b"")
    head = b'{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function",'
    with pytest.raises(Fault) as caught:
        parse(head + b'"function":{"name":"f","parameters":' + schema + b"}}]}")
    assert caught.value.reason in (Reason.INVALID_REQUEST, Reason.MALFORMED_JSON)
