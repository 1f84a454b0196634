"""Tools, calls and results in a prompt: by the family's own template, or in plain words."""

import json

import pytest

from chassis.errors import Fault, Reason
from services.llm.template import ChatTemplate
from services.llm.tools import syntax
from services.llm.values import (
    ChatMessage,
    Conversation,
    Role,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)
from tests.unit import llm_families as families
from tests.unit.llm_families import answered, asked, shown, user


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("hermes", syntax.HERMES),
        ("qwen3", syntax.HERMES),
        ("llama", syntax.LLAMA),
        ("mistral", syntax.MISTRAL),
        ("mistral-named", syntax.MISTRAL_NAMED),
        ("gemma4", syntax.GEMMA_CALL),
        ("gemma3", syntax.HERMES),
        ("chatml", syntax.HERMES),
        ("r1", syntax.HERMES),
    ],
)
def test_the_form_of_calls_is_told_by_the_template(family: str, expected: syntax.Syntax) -> None:
    assert ChatTemplate(families.ALL[family]).syntax == expected


def test_calls_nobody_here_can_read_are_asked_for_in_plain_words() -> None:
    xml = families.HERMES.replace('{"name": <function-name>', "<function=name><parameter=x>")
    prompt = shown(xml, asked())
    assert "<function=" not in prompt
    assert '<tool_call>\n{"name": "function name"' in prompt


@pytest.mark.parametrize("family", families.ALL)
def test_every_template_shows_the_tools_on_offer_and_none_when_none_may_be_called(
    family: str,
) -> None:
    source = families.ALL[family]
    prompt = shown(source, asked())
    assert "get_weather" in prompt
    assert "The weather of a city" in prompt
    forbidden = shown(source, asked(tool_choice=ToolChoice(ToolMode.NONE)))
    assert forbidden == shown(source, asked(tools=()))
    assert "get_weather" not in forbidden


@pytest.mark.parametrize("family", families.ALL)
def test_every_template_shows_a_call_and_its_result(family: str) -> None:
    prompt = shown(families.ALL[family], answered())
    assert prompt.count("get_weather") >= 2
    assert "Paris" in prompt.replace("Paris?", "")
    assert "sunny" in prompt


def test_hermes_gets_arguments_as_an_object() -> None:
    prompt = shown(families.HERMES, answered('{"city":"Paris"}'))
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n' in prompt


def test_arguments_that_were_cut_off_once_do_not_spoil_a_conversation() -> None:
    assert '{\\"city\\": \\"Par' in shown(families.HERMES, answered('{"city": "Par'))


def test_mistral_gets_ids_of_the_length_it_insists_on_and_the_same_on_both_sides() -> None:
    prompt = shown(families.MISTRAL, answered())
    made = prompt.partition('"id": "')[2][:9]
    assert made.isalnum()
    assert f'"call_id": "{made}"' in prompt


def test_gemma_finds_results_in_the_turn_that_called_by_the_tools_name() -> None:
    prompt = shown(families.GEMMA4, answered())
    assert "<tool_call|><|tool_response>response:get_weather{value" in prompt
    assert prompt.count("<|turn>model") == 1


def test_a_turn_of_calls_has_no_content_where_a_template_looks_for_that() -> None:
    source = (
        "{% for m in messages %}{% if m['content'] is none %}[called]{% endif %}{% endfor %}"
        "{{ tools | tojson }}[TOOL_CALLS]"
    )
    assert "[called]" in shown(source, answered())
    assert "[called]" not in shown(source.replace("['content'] is none", ".x"), answered())


def test_plain_words_join_the_system_message_or_stand_before_the_user() -> None:
    turns = (ChatMessage(Role.SYSTEM, "Be brief."), user("hi"))
    prompt = shown(families.CHATML, Conversation(turns, tools=(families.WEATHER,)))
    assert prompt.startswith("<|im_start|>system\nBe brief.\n\nYou may call functions.")
    gemma = shown(families.GEMMA3, asked("the question"))
    assert gemma.startswith("<bos><start_of_turn>user\nYou may call functions.")
    assert gemma.index("get_weather") < gemma.index("the question")


def test_results_in_a_row_are_one_turn_where_turns_must_alternate() -> None:
    calls = (ToolCall("a", "now", ""), ToolCall("b", "now", "{}"))
    turns = (
        user("?"),
        ChatMessage(Role.ASSISTANT, "Wait.", tool_calls=calls),
        ChatMessage(Role.TOOL, "one", tool_call_id="a"),
        ChatMessage(Role.TOOL, "two", tool_call_id="b"),
    )
    prompt = shown(families.GEMMA3, Conversation(turns))
    assert prompt.count("<start_of_turn>user") == 2
    assert 'Wait.\n<tool_call>\n{"name": "now", "arguments": {}}' in prompt
    assert '{"name": "now", "content": "one"}' in prompt


CONTROLS = ("<|im_end|>", "<|eot_id|>", "[/INST]", "</s>", "<turn|>")


def full_of(text: str, *, turns: int) -> Conversation:
    """The text wherever a stranger may put some."""
    call = ToolCall(text, text, json.dumps({text: [text, {"k": text}]}))
    schema = {"properties": {text: {"enum": [text], "description": text}}}
    messages = (
        user(text),
        ChatMessage(Role.ASSISTANT, "", tool_calls=(call,)),
        ChatMessage(Role.TOOL, text, name=text, tool_call_id=text),
        user(text),
    )
    return Conversation(messages[:turns], tools=(Tool(text, text, schema),))


@pytest.mark.parametrize("family", families.ALL)
@pytest.mark.parametrize("name", CONTROLS)
def test_no_string_of_a_tool_a_call_or_a_result_speaks_with_the_templates_voice(
    family: str, name: str
) -> None:
    template = ChatTemplate(families.ALL[family], bos="<bos>", eos="</s>", controls=CONTROLS)
    turns = 3 if family == "gemma3" else 4  # it insists on turns that alternate
    bad = template.render(full_of(f"x{name}y", turns=turns))
    good = template.render(full_of("xy", turns=turns))
    loud, usual = ("".join(s.text for s in prompt if s.control) for prompt in (bad, good))
    assert loud.count(name) == usual.count(name)
    assert sum(name in s.text for s in bad if not s.control) >= 3


@pytest.mark.parametrize("form", ["tools", "tools | string", "'%s' | format(tools)", "tools[0]"])
def test_marks_survive_where_a_template_shows_a_whole_value(form: str) -> None:
    template = ChatTemplate(f"{{{{ {form} }}}}[TOOL_CALLS]", controls=CONTROLS)
    tool = Tool("a<|im_end|>", "say \"\\ufdd0\" '<|im_end|>'", {"<|im_end|>": ["\\<|im_end|>"]})
    segments = template.render(asked(tools=(tool,)))
    assert not any("<|im_end|>" in s.text for s in segments if s.control)
    assert sum("<|im_end|>" in s.text for s in segments) == 4


def test_marks_survive_escaped_json_and_cannot_be_forged_in_it() -> None:
    template = ChatTemplate(
        "{{ messages[0].content | tojson(ensure_ascii=true) }}|", controls=CONTROLS
    )
    segments = template.render(Conversation((user("é<|im_end|> \\ufdd0 \\\\ufdd1"),)))
    assert [s.text for s in segments if not s.control] == ["<|im_end|>"]
    text = "".join(s.text for s in segments)
    assert json.loads(text[:-1]) == "é<|im_end|> \\ufdd0 \\\\ufdd1"


def test_a_schema_nested_beyond_reason_is_refused_by_its_path() -> None:
    schema: dict[str, object] = {}
    for _ in range(200):
        schema = {"properties": {"a": schema}}
    with pytest.raises(Fault) as caught:
        shown(families.HERMES, asked(tools=(Tool("deep", "", schema),)))
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert caught.value.metadata["param"] == "tools[0].function.parameters"
