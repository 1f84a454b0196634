"""Anthropic's bodies into llm.v1, and refusals that name the field."""

import json
import time
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.anthropic.request import MessagesRequest, parse, parse_count
from edge.anthropic.response import Shown
from edge.speech import PARAM

USER = {"role": "user", "content": "Hello"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "weather", "description": "Says it.", "input_schema": SCHEMA}
CALL = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ghent"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "Rain"}


def body(**fields: Any) -> bytes:
    said = {"model": "m", "max_tokens": 9, "messages": [USER], **fields}
    return json.dumps({name: value for name, value in said.items() if value is not ...}).encode()


def parsed(**fields: Any) -> MessagesRequest:
    return parse(body(**fields))


def talk_of(*turns: tuple[str, Any], **fields: Any) -> pb.GenerateRequest.Conversation:
    messages = [{"role": role, "content": content} for role, content in turns]
    return parsed(messages=messages, **fields).generate.conversation


def told(talk: pb.GenerateRequest.Conversation) -> list[tuple[str, str]]:
    """Role and text of every message."""
    return [
        (pb.Role.Name(m.role).removeprefix("ROLE_").lower(), "".join(p.text for p in m.content))
        for m in talk.messages
    ]


def refused(raw: bytes) -> Fault:
    with pytest.raises(Fault) as caught:
        parse(raw)
    return caught.value


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}


def test_the_least_request() -> None:
    asked = parsed()
    assert (asked.model, asked.stream, asked.shown) == ("m", False, Shown())
    expected = pb.GenerateRequest(model="m", max_tokens=9, sampling=pb.Sampling())
    expected.conversation.messages.add(role=pb.ROLE_USER).content.add().text = "Hello"
    assert asked.generate == expected


def test_everything_that_is_understood() -> None:
    asked = parsed(
        stream=True,
        system=[text("Be "), text("kind.")],
        stop_sequences=["a", "\n\nHuman:"],
        temperature=0.5,
        top_p=0.25,
        top_k=3,
        tools=[TOOL],
        tool_choice={"type": "auto"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    )
    generate = asked.generate
    assert asked.stream
    assert told(generate.conversation)[0] == ("system", "Be kind.")
    assert list(generate.stop) == ["a", "\n\nHuman:"]
    assert generate.sampling == pb.Sampling(temperature=0.5, top_p=0.25, top_k=3)
    assert generate.thinking == pb.THINKING_ENABLED
    assert json.loads(generate.output.json_schema) == SCHEMA
    (tool,) = generate.conversation.tools
    assert (tool.name, tool.description) == ("weather", "Says it.")
    assert json.loads(tool.parameters_json) == SCHEMA


# Turns.


def test_a_conversation_with_tools() -> None:
    said = [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, text("Let me look."), CALL]
    talk = talk_of(("user", "Rain?"), ("assistant", said), ("user", [RESULT, text("Well?")]))
    assert told(talk) == [
        ("user", "Rain?"),
        ("assistant", "Let me look."),
        ("tool", "Rain"),
        ("user", "Well?"),
    ]
    _, assistant, tool, _ = talk.messages
    assert assistant.reasoning == "Hm."
    (call,) = assistant.tool_calls
    assert (call.id, call.name, json.loads(call.arguments_json)) == (
        "t1",
        "weather",
        {"city": "Ghent"},
    )
    assert (tool.tool_call_id, tool.name) == ("t1", "weather")
    assert not talk.continue_last


def test_words_before_a_result_stay_before_it() -> None:
    talk = talk_of(("user", "x"), ("assistant", [CALL]), ("user", [text("a"), RESULT, text("b")]))
    assert told(talk)[2:] == [("user", "a"), ("tool", "Rain"), ("user", "b")]


def test_results_stay_in_their_order() -> None:
    calls = [{**CALL, "id": name} for name in ("b", "a")]
    results = [{**RESULT, "tool_use_id": name} for name in ("a", "b")]
    talk = talk_of(("user", "x"), ("assistant", calls), ("user", results))
    assert [m.tool_call_id for m in talk.messages[2:]] == ["a", "b"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"content": ...}, ""),
        ({"content": None}, ""),
        ({"content": [text("a"), text("b")]}, "ab"),
        ({"is_error": False}, "Rain"),
        ({"is_error": True}, "Error: Rain"),
        ({"is_error": True, "content": [text("No."), text(" None.")]}, "Error: No. None."),
    ],
)
def test_what_a_tool_answers(more: dict[str, Any], said: str) -> None:
    result = {name: value for name, value in {**RESULT, **more}.items() if value is not ...}
    talk = talk_of(("user", "x"), ("assistant", [CALL]), ("user", [result]))
    assert told(talk)[-1] == ("tool", said)


def test_turns_of_one_role_are_one() -> None:
    talk = talk_of(
        ("user", "a"),
        ("user", [text("b"), text("c")]),
        ("assistant", "d"),
        ("assistant", [CALL]),
        ("user", [RESULT]),
        system="s",
    )
    assert told(talk) == [
        ("system", "s"),
        ("user", "a\n\nbc"),
        ("assistant", "d"),
        ("tool", "Rain"),
    ]
    assert talk.messages[2].tool_calls[0].id == "t1"


def test_the_last_turn_of_the_assistant_is_continued() -> None:
    talk = talk_of(("user", "x"), ("assistant", "The answer is ("))
    assert talk.continue_last
    assert told(talk)[-1] == ("assistant", "The answer is (")


def test_redacted_thoughts_are_passed_over() -> None:
    said = [{"type": "redacted_thinking", "data": "zzz"}, text("a")]
    talk = talk_of(("user", "x"), ("assistant", said), ("user", "y"))
    assert told(talk) == [("user", "x"), ("assistant", "a"), ("user", "y")]


def test_a_system_turn_stays_in_its_place() -> None:
    talk = talk_of(("user", "x"), ("system", "Be brief."), ("user", "y"))
    assert [role for role, _ in told(talk)] == ["user", "system", "user"]


# Tools, thoughts, form.


@pytest.mark.parametrize(
    ("choice", "mode", "name"),
    [
        ({"type": "auto"}, pb.ToolChoice.MODE_AUTO, ""),
        ({"type": "any"}, pb.ToolChoice.MODE_REQUIRED, ""),
        ({"type": "tool", "name": "weather"}, pb.ToolChoice.MODE_NAMED, "weather"),
        ({"type": "none"}, pb.ToolChoice.MODE_NONE, ""),
        (None, pb.ToolChoice.MODE_UNSPECIFIED, ""),
    ],
)
def test_the_choice_among_tools(choice: Any, mode: int, name: str) -> None:
    talk = parsed(tools=[{**TOOL, "type": "custom"}], tool_choice=choice).generate.conversation
    assert (talk.tool_choice.mode, talk.tool_choice.name) == (mode, name)


def test_parallel_calls_can_be_turned_off() -> None:
    for kind in ("auto", "any"):
        choice = {"type": kind, "disable_parallel_tool_use": True}
        assert parsed(tools=[TOOL], tool_choice=choice).shown.one_call_only


@pytest.mark.parametrize(
    ("thinking", "word", "shown"),
    [
        (None, pb.THINKING_UNSPECIFIED, True),
        ({"type": "disabled"}, pb.THINKING_DISABLED, True),
        ({"type": "adaptive"}, pb.THINKING_ENABLED, True),
        ({"type": "adaptive", "display": "omitted"}, pb.THINKING_ENABLED, False),
        ({"type": "enabled", "budget_tokens": 5, "display": "summarized"}, 1, True),
    ],
)
def test_thinking(thinking: Any, word: int, shown: bool) -> None:
    asked = parsed(thinking=thinking)
    assert (asked.generate.thinking, asked.shown.thinking) == (word, shown)


def test_a_schema_is_handed_on_letter_by_letter() -> None:
    raw = '{ "type" : "object", "properties": {"z": {}, "a": {"const": 1.0e3}, "é": {}} }'
    said = body(tools=[{**TOOL, "input_schema": "HERE"}]).decode().replace('"HERE"', raw)
    assert parse(said.encode()).generate.conversation.tools[0].parameters_json == raw


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"user_id": "u"}, "service_tier": "auto", "speed": "fast"},
        {"cache_control": {"type": "ephemeral"}, "user_profile_id": "p"},
        {"container": None, "mcp_servers": [], "context_management": {}, "inference_geo": None},
        {"diagnostics": None, "output_config": None, "tools": [], "stop_sequences": []},
        {"output_config": {"effort": "high"}, "system": None, "stream": None},
    ],
)
def test_what_changes_nothing_is_let_through(fields: dict[str, Any]) -> None:
    assert parsed(**fields).generate == parsed().generate


# Refusals.


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": ...}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop_sequences": ["a", ""]}, "stop_sequences[1]"),
        ({"stop_sequences": ["é" * 129]}, "stop_sequences[0]"),
        ({"nonsense": 1}, "nonsense"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
        ({"context_management": {"edits": [{}]}}, "context_management"),
        ({"inference_geo": "eu"}, "inference_geo"),
        ({"diagnostics": {"previous_message_id": None}}, "diagnostics"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": 5}}},
            "output_config.format.schema",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "w", "max_uses": 5}]}, "tools[0].type"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "a", "input_schema": []}]}, "tools[0].input_schema"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading"),
        ({"tools": [TOOL] * 129}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], param: str) -> None:
    fault = refused(body(**fields))
    assert fault.reason is Reason.INVALID_REQUEST
    assert fault.metadata[PARAM] == param
    assert f"`{param}`" in fault.message


@pytest.mark.parametrize(
    ("turns", "param"),
    [
        ([("tool", "x")], "messages[0].role"),
        ([("user", [])], "messages[0].content"),
        ([("user", [{"type": "nonsense"}])], "messages[0].content[0].type"),
        ([("user", [CALL])], "messages[0].content[0]"),
        ([("user", "x"), ("assistant", [RESULT])], "messages[1].content[0]"),
        ([("system", [CALL])], "messages[0].content[0]"),
        ([("user", [RESULT])], "messages[0].content[0].tool_use_id"),
        ([("user", "x"), ("assistant", [CALL])], "messages[1]"),
        ([("user", "x"), ("assistant", [{**CALL, "input": "{"}])], "messages[1].content[0].input"),
    ],
)
def test_turns_that_make_no_sense(turns: list[tuple[str, Any]], param: str) -> None:
    fault = refused(body(messages=[{"role": r, "content": c} for r, c in turns]))
    assert (fault.reason, fault.metadata[PARAM]) == (Reason.INVALID_REQUEST, param)
    assert param in fault.message


@pytest.mark.parametrize("kind", ["image", "document"])
def test_other_modalities_are_refused_wherever_they_are(kind: str) -> None:
    block = {"type": kind, "source": {"type": "url", "url": "https://x"}}
    direct = refused(body(messages=[{"role": "user", "content": [text("a"), block]}]))
    assert direct.reason is Reason.MODALITY_UNSUPPORTED
    assert direct.metadata[PARAM] == "messages[0].content[1]"
    turns = [
        USER,
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [{**RESULT, "content": [block]}]},
    ]
    inside = refused(body(messages=turns))
    assert inside.reason is Reason.MODALITY_UNSUPPORTED
    assert inside.metadata[PARAM] == "messages[2].content[0].content[0]"


@pytest.mark.parametrize(
    "raw",
    [b'{"a": "\xff"}', b'{"a": "\\ud800"}', b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[1]", b"null"],
)
def test_an_input_that_is_no_object_is_refused(raw: bytes) -> None:
    said = body(
        messages=[USER, {"role": "assistant", "content": [{**CALL, "input": "HERE"}]}, USER]
    )
    assert refused(said.replace(b'"HERE"', raw)).reason in (
        Reason.INVALID_REQUEST,
        Reason.MALFORMED_JSON,
    )


def test_what_is_handed_on_is_bounded() -> None:
    schema = {"type": "object", "x": [[]] * 2_000_000}
    raw = body(tools=[{**TOOL, "input_schema": schema}])
    tracemalloc.start()
    fault = refused(raw)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "larger than" in fault.message
    assert most < len(raw) * 2


def test_many_turns_are_put_together_in_one_go() -> None:
    thought = {"type": "thinking", "thinking": "h" * 500, "signature": ""}
    turns = [{"role": "assistant", "content": [thought]}] * 16_000
    began_s = time.process_time()
    talk = parsed(messages=turns).generate.conversation
    assert len(talk.messages[0].reasoning) == 500 * 16_000
    assert time.process_time() - began_s < 5  # growing one string takes a minute


def test_counting_takes_a_prompt_alone() -> None:
    said: dict[str, Any] = {"model": "m", "messages": [USER], "system": "s", "tools": [TOOL]}
    said |= {"thinking": {"type": "disabled"}, "tool_choice": {"type": "any"}}
    question = parse_count(json.dumps(said).encode())
    assert question.conversation == parsed(**said).generate.conversation
    assert question.conversation.tools[0].name == "weather"
    assert (question.model, question.thinking) == ("m", pb.THINKING_DISABLED)
    with pytest.raises(Fault) as caught:
        parse_count(json.dumps({**said, "max_tokens": 5}).encode())
    assert caught.value.metadata[PARAM] == "max_tokens"


_blocks = st.lists(
    st.one_of(
        st.builds(text, st.text(max_size=5)),
        st.just(CALL),
        st.just(RESULT),
        st.just({"type": "thinking", "thinking": "h", "signature": ""}),
        st.just({"type": "redacted_thinking", "data": ""}),
        st.just({"type": "image", "source": {}}),
    ),
    max_size=4,
)
_turns = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "system"]),
            "content": st.text(max_size=5) | _blocks,
        }
    ),
    min_size=1,
    max_size=6,
)


@given(_turns)
def test_any_turns_are_understood_or_refused_by_name(turns: list[Any]) -> None:
    refusal, talk = None, pb.GenerateRequest.Conversation()
    try:
        talk = parsed(messages=turns).generate.conversation
    except Fault as fault:
        refusal = fault
    if refusal is not None:
        assert refusal.metadata[PARAM].startswith("messages[")
        return
    for one, next_one in pairwise(talk.messages):
        assert one.role != next_one.role or one.role == pb.ROLE_TOOL
    assert talk.continue_last == (talk.messages[-1].role == pb.ROLE_ASSISTANT)
