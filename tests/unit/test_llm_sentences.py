"""Answers that end after so many sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.llm import reasoning
from services.llm.reply import ReplyForm
from services.llm.tools import syntax
from tests.unit.llm_reading import cut, heard


def limited(text: str, sentences: int, *, letters: bool = False) -> str:
    whole = heard(ReplyForm(), list(text) if letters else [text], (), sentences)
    assert whole.over == (whole.text != text.rstrip() and whole.text != text)
    return whole.text


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One is here. Two is not.", "One is here."),
        ("Really?! Yes.", "Really?!"),
        ('He said "Hi." Then he left.', 'He said "Hi."'),
        ("(Is it?) Yes.", "(Is it?)"),
        ("**Yes.** No.", "**Yes.**"),
        ("Well… Not now.", "Well…"),
        ("It is 3.5 m. Long.", "It is 3.5 m."),
        ("See example.com for it. Then go.", "See example.com for it."),
        ("Dr. Who met Mr. Smith. They left.", "Dr. Who met Mr. Smith."),
        ("J. R. R. Tolkien wrote it. So.", "J. R. R. Tolkien wrote it."),
        ("So did I. He too.", "So did I."),
        ("Fruits, e.g. Apples, are good. Yes.", "Fruits, e.g. Apples, are good."),
        ("It takes approx. five days. Or six.", "It takes approx. five days."),
        ("Wait... what? No.", "Wait... what?"),
        ("1. Wash it. 2. Dry it.", "1. Wash it."),
        ("Steps:\n 12. Wash it. Then dry it.", "Steps:\n 12. Wash it."),
        ("It was in 1999. Then it ended.", "It was in 1999."),
        ("你好。再见。", "你好。"),
        ("他说:「好。」然后走了。", "他说:「好。」"),
        ("No end", "No end"),
        ("The end. ", "The end."),
        ("One\n\nstill one.\nTwo", "One\n\nstill one."),
    ],
)
def test_the_first_sentence(text: str, first: str) -> None:
    assert limited(text, 1) == first
    assert limited(text, 1, letters=True) == first


def test_so_many_and_no_more() -> None:
    text = "One. Two! Three? Four."
    assert [limited(text, n) for n in (1, 2, 3)] == ["One.", "One. Two!", "One. Two! Three?"]
    assert limited(text, 4) == limited(text, 5) == text
    assert limited("One. Two.  ", 5) == "One. Two.  "


@given(st.data(), st.text('aB1.!? \n")。', max_size=40), st.integers(1, 4))
def test_where_it_ends_does_not_depend_on_the_cuts(
    data: st.DataObject, text: str, sentences: int
) -> None:
    pieces = heard(ReplyForm(), cut(data, text), (), sentences)
    assert pieces == heard(ReplyForm(), [text], (), sentences)
    assert text.startswith(pieces.text)


def test_only_what_is_said_is_counted() -> None:
    form = ReplyForm(reasoning.marks_in("<think>"), syntax=syntax.HERMES, tools=frozenset({"f"}))
    call = '<tool_call>{"name": "f", "arguments": {"a": "A. B. C."}}</tool_call>'
    whole = heard(form, list(f"<think>A. B. C.</think>One. {call}Two. Three."), (), 2)
    assert (whole.text, whole.over) == ("One. Two.", True)
    assert len(whole.calls) == 1
