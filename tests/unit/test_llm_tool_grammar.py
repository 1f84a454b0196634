"""Grammars that make a model call tools: what they let through, and that the reader reads it."""

import json
from itertools import product

import pytest
from llguidance import LLMatcher, LLTokenizer
from llguidance._tokenizer import TokenizerWrapper

from services.llm import reasoning
from services.llm.reply import ReplyForm
from services.llm.tools import syntax
from services.llm.tools.grammar import MAX_CALLS, TokenOf, demanded
from services.llm.tools.syntax import Syntax
from services.llm.values import Tool, ToolChoice, ToolMode
from tests.unit.llm_families import NOW, WEATHER
from tests.unit.llm_reading import heard

REQUIRED = ToolChoice(ToolMode.REQUIRED)
WEATHER_ONLY = ToolChoice(ToolMode.NAMED, "get_weather")
SYNTAXES = {
    "hermes": syntax.HERMES,
    "llama": syntax.LLAMA,
    "mistral": syntax.MISTRAL,
    "mistral-named": syntax.MISTRAL_NAMED,
    "gemma-call": syntax.GEMMA_CALL,
    "gemma-function": syntax.GEMMA_FUNCTION,
    "phi": syntax.PHI,
}
THOUGHTS = [None, reasoning.marks_in("<think>"), reasoning.marks_in("<channel|>")]


class Bytes:
    """A vocabulary of single bytes, and of marks that are tokens of their own."""

    def __init__(self, *marks: str) -> None:
        self.bos_token_id = self.eos_token_id = 256
        self.tokens = [bytes([i]) for i in range(256)] + [b"<|end|>"]
        self.special_token_ids = [256]
        for mark in marks:
            self.special_token_ids.append(len(self.tokens))
            self.tokens.append(mark.encode())

    def __call__(self, text: bytes) -> list[int]:
        return list(text)

    def token_of(self, mark: str) -> int | None:
        ids = self.special_token_ids
        return next((i for i in ids if self.tokens[i] == mark.encode()), None)


def lets_through(grammar: str, answer: str, vocabulary: Bytes | None = None) -> bool:
    vocabulary = vocabulary or Bytes()
    matcher = LLMatcher(LLTokenizer(TokenizerWrapper(vocabulary)), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids: list[int] = []
    while answer:
        marks = (i for i in vocabulary.special_token_ids)
        mark = next((i for i in marks if answer.encode().startswith(vocabulary.tokens[i])), None)
        ids += list(answer[0].encode()) if mark is None else [mark]
        answer = answer[1 if mark is None else len(vocabulary.tokens[mark].decode()) :]
    return matcher.consume_tokens(ids) and matcher.is_accepting()


def grammar_of(
    of: Syntax,
    choice: ToolChoice = REQUIRED,
    tools: tuple[Tool, ...] = (WEATHER, NOW),
    token_of: TokenOf = lambda _: None,
    **options: object,
) -> str:
    return demanded(tools, choice, ReplyForm(syntax=of, enforced=True, **options), token_of)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", SYNTAXES)
def test_every_grammar_is_valid(family: str) -> None:
    of = SYNTAXES[family]
    marks = Bytes(*of.marks(), "<think>", "</think>", "<|channel>", "<channel|>")
    spellings: list[TokenOf] = [lambda _: None, marks.token_of]
    for choice, think, inside, token_of in product(
        (REQUIRED, WEATHER_ONLY), THOUGHTS, (False, True), spellings
    ):
        grammar = grammar_of(
            of, choice, token_of=token_of, think=think, thinking=inside and think is not None
        )
        assert LLMatcher.validate_grammar(grammar) == ""


@pytest.mark.parametrize(
    ("family", "one", "two"),
    [
        (
            "hermes",
            '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
            (
                '<tool_call>\n{"name": "get_weather", "arguments": {"city": "P"}}\n</tool_call>\n'
                '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
            ),
        ),
        ("llama", '{"name": "get_weather", "parameters": {"city": "P", "days": 3}}', None),
        (
            "mistral",
            '[TOOL_CALLS] [{"name": "now", "arguments": {}}]',
            '[TOOL_CALLS][{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]',
        ),
        ("mistral-named", "[TOOL_CALLS]now[ARGS]{}", "[TOOL_CALLS]now[ARGS]{}" * 2),
        (
            "gemma-call",
            '<|tool_call>call:get_weather{city:<|"|>P{}<|"|>,days:-3}<tool_call|>',
            "<|tool_call>call:now{}<tool_call|>" * 2,
        ),
        ("phi", '<|tool_call|>[{"name": "now", "arguments": {}}]<|/tool_call|>', None),
    ],
)
def test_what_a_grammar_lets_through_is_read_as_calls(
    family: str, one: str, two: str | None
) -> None:
    of = SYNTAXES[family]
    form = ReplyForm(syntax=of, tools=frozenset({"now", "get_weather"}), enforced=True)
    for vocabulary in (Bytes(), Bytes(*of.marks())):
        grammar = grammar_of(of, token_of=vocabulary.token_of)
        named = grammar_of(of, WEATHER_ONLY, token_of=vocabulary.token_of)
        assert lets_through(grammar, one, vocabulary)
        assert not lets_through(grammar, "Sorry, I", vocabulary)
        assert not lets_through(grammar, "", vocabulary)
        assert lets_through(named, one, vocabulary) == ("get_weather" in one)
        if two:
            assert lets_through(grammar, two, vocabulary)
            assert not lets_through(named, two, vocabulary)
    for answer in filter(None, (one, two)):
        whole = heard(form, list(answer))
        assert whole.text == ""
        assert len(whole.calls) == (2 if answer == two else 1)
        assert all(isinstance(json.loads(arguments), dict) for _, arguments in whole.calls)


def test_arguments_follow_the_tools_schema() -> None:
    head, tail = '<tool_call>\n{"name": "get_weather", "arguments": ', "}\n</tool_call>"
    grammar = grammar_of(syntax.HERMES)
    for arguments, fine in (
        ('{"city": "Paris"}', True),
        ('{"days": 3}', False),
        ('{"city": 3}', False),
        ('{"city":    "Paris"}', False),  # white space without end is where small models get lost
    ):
        assert lets_through(grammar, head + arguments + tail) is fine
    quoted = grammar_of(syntax.GEMMA_CALL)
    for arguments, fine in (
        ('city:<|"|>P<|"|>', True),
        ("days:3", False),
        ("city:3", False),
    ):
        call = f"<|tool_call>call:get_weather{{{arguments}}}<tool_call|>"
        assert lets_through(quoted, call) is fine


def test_a_schema_is_enforced_as_far_as_that_goes() -> None:
    parameters = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", 'é"b']},
            "sizes": {"type": "array", "items": {"type": ["number", "null"]}},
            "at": {"type": "object", "properties": {"x": {"type": "boolean"}}},
            "any": {"not": {"type": "string"}},
        },
        "required": ["kind"],
        "x-guidance": {"whitespace_flexible": True},
    }
    tool = Tool('odd "name"', "", parameters)
    assert LLMatcher.validate_grammar(grammar_of(syntax.HERMES, tools=(tool,))) == ""
    head = '<tool_call>\n{"name": "odd \\"name\\"", "arguments": '
    json_form = grammar_of(syntax.HERMES, tools=(tool,))
    assert lets_through(json_form, head + '{"kind": "a", "sizes": [1, null]}}\n</tool_call>')
    assert not lets_through(json_form, head + '{"kind":  "a"}}\n</tool_call>')
    quoted = grammar_of(syntax.GEMMA_CALL, tools=(tool,))
    call = (
        '<|tool_call>call:odd "name"{{kind:<|"|>{}<|"|>,sizes:[1.5,null],at:{{x:{}}}}}<tool_call|>'
    )
    assert lets_through(quoted, call.format('é"b', "true"))
    assert not lets_through(quoted, call.format("c", "true"))
    assert not lets_through(quoted, call.format("a", "1"))


def test_a_model_that_knows_no_end_comes_to_one() -> None:
    call = "[TOOL_CALLS]now[ARGS]{}"
    grammar = grammar_of(syntax.MISTRAL_NAMED)
    assert lets_through(grammar, call * MAX_CALLS)
    assert not lets_through(grammar, call * (MAX_CALLS + 1))


def test_a_thought_may_come_before_the_call_and_must_end_where_the_prompt_opened_it() -> None:
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    think = reasoning.marks_in("<think>")
    for vocabulary in (Bytes(), Bytes("<think>", "</think>", "<tool_call>", "</tool_call>")):
        may = grammar_of(syntax.HERMES, token_of=vocabulary.token_of, think=think)
        assert lets_through(may, call, vocabulary)
        assert lets_through(may, f"<think>\nhm\n</think>\n\n{call}", vocabulary)
        assert not lets_through(may, f"hm {call}", vocabulary)
        must = grammar_of(syntax.HERMES, token_of=vocabulary.token_of, think=think, thinking=True)
        assert lets_through(must, f"hm </think>{call}", vocabulary)
        assert not lets_through(must, call, vocabulary)
