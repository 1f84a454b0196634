"""An answer told apart: text, thoughts, calls; the same however its bytes are cut."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.llm import reasoning
from services.llm.reply import Reply, ReplyForm, new_call_id
from services.llm.tools import syntax
from services.llm.tools.syntax import Syntax
from tests.unit.llm_reading import cut, heard, reply

THINK = reasoning.marks_in("<think>")
CHANNEL = reasoning.marks_in("<|channel>thought\n")
TOOLS = frozenset({"f", "get_weather"})


def form(of: Syntax, **options: Any) -> ReplyForm:
    return ReplyForm(syntax=of, tools=TOOLS, **options)


HERMES, LLAMA = form(syntax.HERMES), form(syntax.LLAMA)
MISTRAL, NAMED = form(syntax.MISTRAL), form(syntax.MISTRAL_NAMED)
GEMMA_CALL = form(syntax.GEMMA_CALL)
A, B = '{"city": "Paris"}', "{}"


@pytest.mark.parametrize(
    ("family", "answer", "text", "calls"),
    [
        (
            HERMES,
            (
                f'Let me see.\n<tool_call>\n{{"name": "f", "arguments": {A}}}\n</tool_call>\n'
                f'<tool_call>\n{{"name": "get_weather", "arguments": {B}}}\n</tool_call>'
            ),
            "Let me see.\n",
            [("f", A), ("get_weather", B)],
        ),
        (HERMES, f'<tool_call>{{"arguments": {A}, "name": "f"}}', "", [("f", A)]),
        (HERMES, '<tool_call>{"name": "f"}</tool_call> Done.', " Done.", [("f", B)]),
        (HERMES, '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", B)]),
        (
            HERMES,
            '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
            "",
            [("f", '{"a": 1}')],
        ),
        (
            HERMES,
            '<tool_call>{"name": "f", "arguments": {"a": "1\n2"}}</tool_call>',
            "",
            [("f", '{"a": "1\\n2"}')],
        ),
        (
            LLAMA,
            f'{{"name": "f", "parameters": {A}}}; {{"name": "f", "parameters": {B}}}',
            "",
            [("f", A), ("f", B)],
        ),
        (
            LLAMA,
            f'\n<|python_tag|>{{"type": "function", "name": "f", "parameters": {A}}}',
            "",
            [("f", A)],
        ),
        (
            MISTRAL,
            (
                f'[TOOL_CALLS] [{{"name": "f", "arguments": {A}}}, '
                f'{{"name": "f", "arguments": {B}, "id": "abcdefghi"}}]'
            ),
            "",
            [("f", A), ("f", B)],
        ),
        (
            NAMED,
            f"I look.[TOOL_CALLS]f[ARGS]{A}[TOOL_CALLS]get_weather[CALL_ID]a1[ARGS]{B}",
            "I look.",
            [("f", A), ("get_weather", B)],
        ),
        (NAMED, f"[TOOL_CALLS]f{A}", "", [("f", A)]),
        (
            HERMES,
            f'Sure.\n```tool_code\n{{"name": "f", "parameters": {A}}}\n```',
            "Sure.\n",
            [("f", A)],
        ),
        (HERMES, f'```json\n{{"name": "f", "arguments": {A}}}\n```\nSo.', "\nSo.", [("f", A)]),
        (
            GEMMA_CALL,
            (
                '<|tool_call>call:f{city:<|"|>Pa}r,is<|"|>,n:-2.5,l:[<|"|>"<|"|>,true],'
                'o:{<|"|>a b<|"|>:null}}<tool_call|>'
                "<|tool_call>call:get_weather{}<tool_call|>"
            ),
            "",
            [
                ("f", '{"city": "Pa}r,is", "n": -2.5, "l": ["\\"", true], "o": {"a b": null}}'),
                ("get_weather", B),
            ],
        ),
    ],
)
def test_each_family_writes_calls_in_its_own_way(
    family: ReplyForm, answer: str, text: str, calls: list[tuple[str, str]]
) -> None:
    for pieces in ([answer], list(answer)):
        whole = heard(family, pieces)
        assert (whole.text.strip(), whole.calls) == (text.strip(), calls)
        assert whole.ids == [f"call_{i}" for i in range(len(calls))]


@pytest.mark.parametrize(
    ("family", "answer"),
    [
        (HERMES, '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f", "arguments": {"a": }}</tool_call> and more'),
        (HERMES, '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f" "arguments": {}}</tool_call>'),
        (HERMES, '<tool_call>{"name": ["f"], "arguments": {}}</tool_call>'),
        (HERMES, '<tool_call>{"name": "f", "arguments": ' + "[" * 5000 + "]" * 5000 + "}"),
        (HERMES, '<tool_call>{"name": "f", "argum'),
        (HERMES, "<tool_call> I would rather not."),
        (HERMES, '{"name": "Ada", "id": 1}'),
        (HERMES, '```json\n{"name": "Ada"}\n```\nis <b>'),
        (HERMES, "a < b <tool> <tool_cal </tool_call> c"),
        (HERMES, "<tool_call>"),
        (LLAMA, '{"result": {"name": "f"}} is my answer'),
        (LLAMA, 'It is {"name": "f", "parameters": {}}'),
        (LLAMA, "  {"),
        (LLAMA, "<|python_tag|>print(1)"),
        (MISTRAL, "[TOOL_CALLS] none"),
        (NAMED, "[TOOL_CALLS]unknown[ARGS]{}"),
        (NAMED, "[TOOL_CALLS]f"),
        (HERMES, '```json\n{"a": 1}\n```'),
        (GEMMA_CALL, "<|tool_call>call:f{a:<tool_call|>}<tool_call|>"),
        (ReplyForm(), '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    ],
)
def test_what_is_no_call_comes_out_as_the_text_it_is(family: ReplyForm, answer: str) -> None:
    for pieces in ([answer], list(answer)):
        whole = heard(family, pieces)
        assert (whole.text, whole.calls) == (answer, [])


def test_text_before_a_call_goes_out_at_once_and_never_part_of_a_mark() -> None:
    reader = reply(HERMES)
    assert reader.feed(b"Let me see. <too").text == "Let me see. "
    assert reader.feed(b"l>").text == "<tool>"
    assert reader.feed(b"<tool_call>").text == ""
    assert not reader.called
    said = reader.feed(b'{"name": "f", "arguments": {}}')
    assert [(d.index, d.name, d.arguments_json) for d in said.tool_calls] == [
        (0, "f", ""),
        (0, "", "{}"),
    ]
    assert reader.called


def test_json_that_is_no_call_is_held_back_only_until_that_shows() -> None:
    reader = reply(HERMES)
    assert reader.feed(b'{"name": "Ad').text == ""
    assert reader.feed(b'a", ').text == '{"name": "Ada", '
    assert reader.feed(b'"id": ').text == '"id": '
    assert reply(HERMES).feed(b'```json\n{"x": ').text == '```json\n{"x": '
    assert reply(HERMES).feed(b"{ so").text == "{ so"


def test_a_call_is_not_heard_of_before_it_is_whole() -> None:
    reader = reply(HERMES)
    assert not reader.feed(b'<tool_call>{"name": "f", "arguments": {"a": "b"}').tool_calls
    assert reader.feed(b"}").tool_calls


def test_calls_that_a_grammar_enforces_are_passed_on_while_they_are_written() -> None:
    for family, head in (
        (form(syntax.HERMES, enforced=True), '<tool_call>\n{"name": "f", "arguments": '),
        (form(syntax.MISTRAL_NAMED, enforced=True), "[TOOL_CALLS]f[ARGS]"),
    ):
        reader = reply(family)
        first = reader.feed(f'{head}{{"a": '.encode()).tool_calls
        assert [(d.index, d.id, d.name, d.arguments_json) for d in first] == [
            (0, "call_0", "f", ""),
            (0, "", "", '{"a": '),
        ]
        assert [d.arguments_json for d in reader.feed(b'"x } y').tool_calls] == ['"x } y']
        assert [d.arguments_json for d in reader.feed(b'"}').tool_calls] == ['"}']
        said = reader.flush()
        assert (said.text, said.tool_calls) == ("", ())


def test_ids_are_unique_and_look_like_those_that_clients_know() -> None:
    first, second = new_call_id(), new_call_id()
    assert first != second
    assert len(first) == len("call_") + 24
    assert int(first.removeprefix("call_"), 16) >= 0


def test_control_tokens_that_are_marks_never_show_even_where_a_call_fails() -> None:
    names = frozenset({"<|python_tag|>", "[TOOL_CALLS]", "[ARGS]"})
    assert heard(form(syntax.LLAMA, visible=names), ["<|python_tag|>print(1)"]).text == "print(1)"
    named = form(syntax.MISTRAL_NAMED, visible=names)
    assert heard(named, ["[TOOL_CALLS]x[ARGS]{}"]).text == "x{}"
    assert heard(named, list("so [ARGS] it is")).text == "so  it is"


def thinking(answer: str, **options: Any) -> tuple[str, str]:
    seen = set()
    for pieces in ([answer], list(answer), [answer[:7], answer[7:]]):
        whole = heard(ReplyForm(think=THINK, **options), pieces)
        seen.add((whole.reasoning, whole.text))
    assert len(seen) == 1
    return seen.pop()


def test_thoughts_are_never_part_of_the_text() -> None:
    assert thinking("<think>\nHm.\n</think>\n\nYes.") == ("Hm.", "Yes.")
    assert thinking("\n<think>\n\n</think>\n\nYes.") == ("", "Yes.")
    assert thinking("Yes, <think>hm <b> </think> no.") == ("hm <b>", "Yes, no.")
    assert thinking(" Yes.") == ("", " Yes.")
    assert thinking("<thin air>") == ("", "<thin air>")


def test_a_thought_may_be_open_before_the_answer_begins_or_never_end() -> None:
    assert thinking("Hm.\n</think>\n\nYes.", thinking=True) == ("Hm.", "Yes.")
    assert thinking("Hm, </thi", thinking=True) == ("Hm, </thi", "")
    assert thinking("<think>Hm", thinking=False) == ("Hm", "")


def test_a_closing_without_a_thought_is_a_slip_and_shows_nowhere() -> None:
    assert thinking("Yes.</think> No.") == ("", "Yes.No.")


def test_it_is_known_whether_the_model_thinks_now() -> None:
    reader = reply(ReplyForm(think=THINK))
    states = []
    for piece in (b"<thi", b"nk>", b"hm", b"</thin", b"k>", b" yes"):
        reader.feed(piece)
        states.append(reader.thinking)
    assert states == [False, True, True, True, False, False]
    assert reply(ReplyForm(think=THINK, thinking=True)).thinking


def test_calls_and_stop_strings_within_a_thought_are_thoughts() -> None:
    answer = '<think>STOP <tool_call>{"name": "f"}</tool_call></think>Go STOP on'
    whole = heard(form(syntax.HERMES, think=THINK), list(answer), ("STOP",))
    assert whole.reasoning == 'STOP <tool_call>{"name": "f"}</tool_call>'
    assert (whole.text, whole.calls, whole.stop, whole.over) == ("Go ", [], "STOP", True)


def test_thoughts_of_a_channel() -> None:
    family = form(syntax.GEMMA_CALL, think=CHANNEL, visible=frozenset({"<|channel>", "<channel|>"}))
    whole = heard(
        family, list("<|channel>thought\nhm<channel|>Yes.<|tool_call>call:f{}<tool_call|>")
    )
    assert (whole.reasoning, whole.text, whole.calls) == ("hm", "Yes.", [("f", "{}")])


def test_stop_strings_end_what_is_said_and_are_not_seen_within_calls() -> None:
    answer = '<tool_call>{"name": "f", "arguments": {"a": "STOP"}}</tool_call>so ST'
    whole = heard(HERMES, [*list(answer), "OP", " more"], ("STOP",))
    assert (whole.text, whole.stop, whole.over) == ("so ", "STOP", True)
    assert whole.calls == [("f", '{"a": "STOP"}')]
    assert heard(HERMES, list(answer), ("STOP",)).text == "so ST"


def test_behind_its_end_nothing_is_read() -> None:
    whole = heard(HERMES, ['one STOP <tool_call>{"name": "f"}</tool_call>'], ("STOP",))
    assert (whole.text, whole.calls, whole.over) == ("one ", [], True)
    reader = Reply(ReplyForm(), ("STOP",))
    assert reader.feed(b"STOP").over
    assert reader.feed(b"more").text == reader.flush().text == ""


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text('ab"\\{}[]<é\n/_|>', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab:{", max_size=3), inner),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text("abc", min_size=1, max_size=3), VALUES, max_size=3)
SAYINGS = st.text("ab <[{.\n", max_size=12)


@pytest.mark.parametrize("enforced", [False, True])
@pytest.mark.parametrize(
    ("family", "written", "between"),
    [
        (syntax.HERMES, '<tool_call>\n{{"name": "f", "arguments": {}}}\n</tool_call>', "\n"),
        (syntax.LLAMA, '<|python_tag|>{{"name": "f", "parameters": {}}}', ""),
        (syntax.MISTRAL, '[TOOL_CALLS][{{"name": "f", "arguments": {}}}]', ""),
        (syntax.MISTRAL_NAMED, "[TOOL_CALLS]f[ARGS]{}", ""),
        (syntax.HERMES, '```json\n{{"name": "f", "parameters": {}}}\n```', "\n"),
    ],
)
@given(st.data(), SAYINGS, st.lists(ARGUMENTS, max_size=3), st.text("ab .\n", max_size=6))
def test_however_the_bytes_are_cut_the_answer_is_the_same(
    family: Syntax,
    written: str,
    between: str,
    enforced: bool,
    data: st.DataObject,
    said: str,
    calls: list[dict[str, Any]],
    thought: str,
) -> None:
    said = f"x{said.rstrip()}" if said else ""
    answer = f"<think>{thought}</think>{said}" + between.join(
        written.format(json.dumps(arguments, ensure_ascii=False)) for arguments in calls
    )
    reads = form(family, think=THINK, enforced=enforced)
    whole = heard(reads, cut(data, answer))
    assert whole.text == said
    assert whole.reasoning == thought.strip()
    assert [json.loads(arguments) for _, arguments in whole.calls] == calls
    assert whole == heard(reads, [answer])


MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "f"', ', "arguments": {}}']


@given(st.data(), st.lists(st.sampled_from([*MARKS, "a", " ", "{", "}", "<", "STOP", ". B"])))
def test_whatever_a_model_writes_is_read_the_same_and_no_mark_of_thoughts_shows(
    data: st.DataObject, parts: list[str]
) -> None:
    answer = "".join(parts)
    reads = form(syntax.HERMES, think=THINK)
    for stops, sentences in (((), 0), (("STOP", "a<"), 0), (("STOP",), 2)):
        whole = heard(reads, cut(data, answer), stops, sentences)
        assert whole == heard(reads, [answer], stops, sentences)
        for name, arguments in whole.calls:
            assert name == "f"
            assert json.loads(arguments) == {}
        if not any(stop in answer for stop in stops) and "<tool_call>" not in answer:
            assert "<think>" not in whole.text
            assert "</think>" not in whole.text + whole.reasoning


@pytest.mark.parametrize(
    "answer", ["<tool_call>{" * 20_000, "<tool_call>" + " [" * 60_000, "{" * 100_000, " " * 200_000]
)
def test_an_answer_that_mocks_the_form_of_calls_costs_no_more_than_its_length(answer: str) -> None:
    began = time.process_time()
    for family in (HERMES, LLAMA):
        whole = heard(family, [answer[i : i + 4] for i in range(0, len(answer), 4)])
        assert whole.text == answer
    assert time.process_time() - began < 4  # about half a second; squared it would be minutes


def test_many_long_stop_strings_cost_no_more_than_the_answers_length() -> None:
    stops = tuple(f"{i:03}" + "x" * 253 for i in range(64))
    began = time.process_time()
    reader = Reply(ReplyForm(), stops)
    for _ in range(2_000):
        reader.feed(b"001" + b"x" * 5)
    assert time.process_time() - began < 4


TWICE = {
    "hermes": (
        syntax.HERMES,
        (
            f'Well. <tool_call>{{"name": "f", "arguments": {A}}}</tool_call>'
            f'<tool_call>{{"name": "get_weather", "arguments": {B}}}</tool_call> Done.'
        ),
    ),
    "llama": (
        syntax.LLAMA,
        f'{{"name": "f", "parameters": {A}}}; {{"name": "f", "parameters": {B}}}',
    ),
    "mistral": (
        syntax.MISTRAL,
        f'[TOOL_CALLS] [{{"name": "f", "arguments": {A}}}, {{"name": "f", "arguments": {B}}}] So.',
    ),
}


@given(st.data(), st.sampled_from(sorted(TWICE)), st.booleans())
def test_a_single_call_ends_it(data: st.DataObject, family: str, enforced: bool) -> None:
    of, answer = TWICE[family]
    begins = answer.index("<") if family == "hermes" and enforced else 0
    pieces = cut(data, answer[begins:])
    said = heard(form(of, single=True, enforced=enforced), pieces)
    assert said.calls == [("f", A)]
    assert "Done" not in said.text
    reader = reply(form(of, single=True, enforced=enforced))
    assert any(reader.feed(piece).over for piece in pieces)
