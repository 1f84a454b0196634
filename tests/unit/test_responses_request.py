"""OpenAI's Responses body into llm.v1, and refusals that name the field."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge import json_body
from edge.responses.body import decoder
from edge.responses.objects import ListedItem
from edge.responses.request import Understood, understand
from edge.speech import PARAM
from services.llm.wire import params_of, prompt_of

USER = {"role": "user", "content": "Hello"}
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
CALL = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"A"}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Hm."}],
    "encrypted_content": None,
    "status": None,
}
ANSWER = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}],
}


def asked(before: tuple[ListedItem, ...] = (), **fields: Any) -> Understood:
    raw = json.dumps({"model": "m", "input": "Hello", **fields}).encode()
    numbers = itertools.count(1)
    return understand(
        json_body.decode(decoder, raw), before, lambda prefix: f"{prefix}{next(numbers)}"
    )


def refused(**fields: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        asked(**fields)
    return caught.value


def turn(role: Any, text: str = "", **fields: Any) -> pb.Message:
    content = [pb.ContentPart(text=text)] if text else []
    return pb.Message(role=role, content=content, **fields)


def turns(**fields: Any) -> list[pb.Message]:
    return list(asked(**fields).generate.conversation.messages)


def test_the_least_request() -> None:
    expected = pb.GenerateRequest(model="m", sampling=pb.Sampling())
    expected.conversation.messages.append(turn(pb.ROLE_USER, "Hello"))
    assert asked().generate == expected


def test_everything_that_is_understood() -> None:
    generate = asked(
        instructions="Be brief.",
        max_output_tokens=9,
        temperature=0,
        top_p=0.5,
        top_logprobs=2,
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        tools=[TOOL],
        tool_choice={"type": "function", "name": "weather"},
        parallel_tool_calls=True,
        text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        reasoning={"effort": "high", "summary": "auto"},
        stream=True,
        stream_options={"include_obfuscation": False},
        metadata={"a": "b"},
        truncation="disabled",
    ).generate
    assert list(generate.conversation.messages) == [
        turn(pb.ROLE_SYSTEM, "Be brief."),
        turn(pb.ROLE_USER, "Hello"),
    ]
    (tool,) = generate.conversation.tools
    assert (tool.name, tool.description) == ("weather", "Of a city.")
    assert json.loads(tool.parameters_json) == TOOL["parameters"]
    choice = generate.conversation.tool_choice
    assert (choice.mode, choice.name) == (pb.ToolChoice.MODE_NAMED, "weather")
    assert json.loads(generate.output.json_schema) == {"type": "object"}
    assert (generate.max_tokens, generate.thinking) == (9, pb.THINKING_ENABLED)
    assert (generate.logprobs, generate.top_logprobs) == (True, 2)
    assert (generate.sampling.temperature, generate.sampling.top_p) == (0, 0.5)
    assert generate.sampling.HasField("temperature")
    # An engine understands all of it.
    assert prompt_of(generate)
    assert params_of(generate).max_tokens == 9


def test_fields_that_change_no_answer_are_let_through() -> None:
    plain = asked().generate
    harmless: dict[str, Any] = {
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "user": "u",
        "background": False,
        "store": False,
        "include": [],
        "tools": [],
        "conversation": None,
        "max_tool_calls": 3,
        "text": {"verbosity": "medium"},
    }
    for field, value in harmless.items():
        assert asked(**{field: value}).generate == plain, field


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"background": True}, "background", "not supported yet"),
        ({"conversation": "conv_1"}, "conversation", "not supported yet"),
        ({"prompt": {"id": "p"}}, "prompt", "not supported yet"),
        ({"messages": [USER]}, "messages", "not supported yet"),
        ({"decoding": {"top_k": 1}}, "decoding", "not supported yet"),
        ({"fairness_key": "k"}, "fairness_key", "not supported yet"),
        ({"allow_remote": True}, "allow_remote", "not supported yet"),
        ({"truncation": "auto"}, "truncation", "must be `disabled`"),
        ({"include": ["file_search_call.results"]}, "include", "`file_search_call.results`"),
        ({"stream_options": {}}, "stream_options", "needs `stream: true`"),
        ({"text": {"verbosity": "low"}}, "text.verbosity", "not supported"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "miss"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": []}}},
            "text.format.schema",
            "must be a JSON object",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "`web_search`"),
        ({"tools": [TOOL, {"type": "mcp", "server": 1}]}, "tools[1].type", "`mcp`"),
        ({"tools": [{**TOOL, "shape": 1}]}, "tools[0].shape", "Unknown field"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "missing"),
        ({"tools": [{**TOOL, "parameters": 5}]}, "tools[0].parameters", "must be a JSON object"),
        ({"tools": [7]}, "tools[0]", "expected `object`"),
        ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice", "must be none"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "must be none"),
        ({"input": ""}, "input", "missing"),
        ({"input": []}, "input", "missing"),
        ({"input": None}, "input", "missing"),
        ({"input": [{"type": "computer_call", "action": {}}]}, "input[0].type", "`computer_call`"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type", "`item_reference`"),
        ({"input": [USER, {"role": "user"}]}, "input[1].content", "missing"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role", "tool"),
        ({"input": [{**USER, "colour": "red"}]}, "input[0].colour", "Unknown field"),
        (
            {"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
            "input[0].content[0].type",
            "expected `input_text`",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0].text",
            "missing",
        ),
        ({"input": [{**USER, "id": "x" * 257}]}, "input[0].id", "256"),
        ({"input": [OUTPUT]}, "input", "call_id c1"),
        ({"thinking": "enabled", "reasoning": {"effort": "none"}}, "thinking", "disagree"),
        ({"metadata": {"k": "x" * 513}}, "metadata[...]", "512"),
        ({"top_logprobs": 21}, "top_logprobs", "20"),
        ({"nothing_like_it": 1}, "nothing_like_it", "Unknown field"),
    ],
)
def test_a_refusal_names_the_field(fields: dict[str, Any], param: str, said: str) -> None:
    fault = refused(**fields)
    assert (fault.reason, fault.metadata[PARAM]) == (Reason.INVALID_REQUEST, param)
    assert said in fault.message


@pytest.mark.parametrize("depth", [10, 900, 980, 1000, 10_000])
@pytest.mark.parametrize(
    "body",
    [
        '{"model":"m","input":[{"role":"user","content":%s}]}',
        '{"model":"m","input":[%s]}',
        '{"model":"m","input":"x","tools":[{"type":"function","name":%s}]}',
        '{"model":"m","input":"x","background":%s}',
    ],
)
def test_deep_bodies_are_refused_however_deep(body: str, depth: int) -> None:
    raw = (body % ("[" * depth + "]" * depth)).encode()
    with pytest.raises(Fault) as caught:
        understand(json_body.decode(decoder, raw), (), str)
    assert caught.value.reason is Reason.INVALID_REQUEST


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "input_image", "image_url": "data:image/png;base64,AA=="}, "images"),
        ({"type": "input_file", "file_id": "f", "filename": "a.pdf"}, "files"),
        ({"type": "input_audio", "input_audio": {}}, "audio"),
    ],
)
def test_what_is_no_text_is_another_modality(part: dict[str, Any], said: str) -> None:
    for at, item in (
        ("input[0].content[0]", {"role": "user", "content": [part]}),
        ("input[0].output[0]", {**OUTPUT, "output": [part]}),
    ):
        fault = refused(input=[item])
        assert (fault.reason, fault.metadata[PARAM]) == (Reason.MODALITY_UNSUPPORTED, at)
        assert said in fault.message


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, pb.THINKING_UNSPECIFIED),
        ({"thinking": "default"}, pb.THINKING_UNSPECIFIED),
        ({"thinking": "enabled"}, pb.THINKING_ENABLED),
        ({"thinking": "disabled"}, pb.THINKING_DISABLED),
        ({"reasoning": {}}, pb.THINKING_UNSPECIFIED),
        ({"reasoning": {"effort": "none"}}, pb.THINKING_DISABLED),
        ({"reasoning": {"effort": "minimal"}}, pb.THINKING_DISABLED),
        ({"reasoning": {"effort": "low"}}, pb.THINKING_ENABLED),
        ({"reasoning": {"effort": "high"}, "thinking": "enabled"}, pb.THINKING_ENABLED),
    ],
)
def test_thinking(fields: dict[str, Any], thinking: Any) -> None:
    assert asked(**fields).generate.thinking == thinking


# Items.


def test_a_round_of_tools_is_passed_back() -> None:
    said = turns(input=[USER, REASONING, CALL, OUTPUT, ANSWER, {**USER, "content": "And B?"}])
    call = pb.ToolCall(id="c1", name="weather", arguments_json='{"city":"A"}')
    assert said == [
        turn(pb.ROLE_USER, "Hello"),
        turn(pb.ROLE_ASSISTANT, reasoning="Hm.", tool_calls=[call]),
        turn(pb.ROLE_TOOL, "rain", tool_call_id="c1", name="weather"),
        turn(pb.ROLE_ASSISTANT, "Hi."),
        turn(pb.ROLE_USER, "And B?"),
    ]


def test_what_was_thought_said_and_called_in_a_row_is_one_turn() -> None:
    second = {**CALL, "call_id": "c2"}
    (said,) = turns(input=[REASONING, ANSWER, CALL, second])
    assert (said.reasoning, said.content[0].text) == ("Hm.", "Hi.")
    assert [call.id for call in said.tool_calls] == ["c1", "c2"]
    # What is said after a call is another turn, and so is what is said twice.
    assert len(turns(input=[CALL, ANSWER])) == len(turns(input=[ANSWER, ANSWER])) == 2


def test_a_thought_that_came_to_nothing_is_no_turn() -> None:
    assert turns(input=[REASONING, USER]) == [turn(pb.ROLE_USER, "Hello")]


def test_a_summary_stands_for_a_thought_that_was_not_told() -> None:
    summary = [{"type": "summary_text", "text": "Short."}]
    (said,) = turns(input=[{"type": "reasoning", "id": "r", "summary": summary}, ANSWER])
    assert said.reasoning == "Short."


def test_roles_and_parts() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    developer = {"role": "developer", "content": "D"}
    assert turns(input=[developer, {"role": "user", "content": parts}, refusal]) == [
        turn(pb.ROLE_SYSTEM, "D"),
        turn(pb.ROLE_USER, "ab"),
        turn(pb.ROLE_ASSISTANT, "No."),
    ]


def test_the_conversation_before_stands_in_front_and_its_instructions_do_not() -> None:
    before = asked(instructions="Old.", input=[USER, CALL]).given
    after = asked(before, instructions="New.", input=[OUTPUT]).generate.conversation.messages
    assert [(m.role, m.content[0].text if m.content else "") for m in after] == [
        (pb.ROLE_SYSTEM, "New."),
        (pb.ROLE_USER, "Hello"),
        (pb.ROLE_ASSISTANT, ""),
        (pb.ROLE_TOOL, "rain"),
    ]


_ITEMS = st.sampled_from([USER, ANSWER, REASONING, CALL, OUTPUT, {**USER, "role": "system"}])


@given(st.lists(_ITEMS, min_size=1, max_size=12))
def test_any_row_of_items_is_turns_in_their_order_or_an_output_without_a_call(
    row: list[dict[str, Any]],
) -> None:
    if OUTPUT in row and CALL not in row[: row.index(OUTPUT)]:
        assert "c1" in refused(input=row).message
        return
    said = turns(input=row)
    told = "".join(m.reasoning + "".join(p.text for p in m.content) for m in said)
    words = {"user": "Hello", "system": "Hello", "assistant": "Hi.", None: ""}
    wanted = [words[item.get("role")] if item is not OUTPUT else "rain" for item in row]
    assert told.replace("Hm.", "") == "".join(wanted)
    assert sum(len(m.tool_calls) for m in said) == row.count(CALL)
    assert all(not m.reasoning or m.content or m.tool_calls for m in said)


# Translation.


def test_a_translation_is_one_part() -> None:
    (said,) = turns(source_lang_code="nl", target_lang_code="en")
    expected = pb.ContentPart.Translation(
        text="Hello", source_lang_code="nl", target_lang_code="en"
    )
    assert said == pb.Message(role=pb.ROLE_USER, content=[pb.ContentPart(translation=expected)])


@pytest.mark.parametrize("source", [None, "", "auto", "mixed"])
def test_a_text_in_any_language_has_no_source(source: str | None) -> None:
    (said,) = turns(source_lang_code=source, target_lang_code="en")
    assert said.content[0].translation.source_lang_code == ""


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"source_lang_code": "nl"}, "target_lang_code"),
        ({"target_lang_code": ""}, "target_lang_code"),
        ({"target_lang_code": "en", "input": [USER]}, "input"),
        ({"target_lang_code": "en", "instructions": "Be brief."}, "instructions"),
        ({"target_lang_code": "en", "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_a_translation_that_cannot_be(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).metadata[PARAM] == param
