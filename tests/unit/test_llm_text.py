"""Bytes to text and stop strings, against oracles that see the whole text at once."""

from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.llm.text import AnswerText, StopScanner, Utf8Stream

LETTERS = st.text("abc", max_size=40)
STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=5).map(tuple)


Whole = TypeVar("Whole", str, bytes)


def pieces(data: st.DataObject, whole: Whole) -> list[Whole]:
    cuts: list[int] = sorted(
        data.draw(st.lists(st.integers(0, len(whole)), max_size=12), label="cuts")
    )
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def first_stop(text: str, stops: tuple[str, ...]) -> tuple[str, str]:
    """Letter by letter: the text before the stop string that ends first."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return text, ""


def scanned(parts: list[str], stops: tuple[str, ...]) -> tuple[str, str]:
    scanner, shown = StopScanner(stops), ""
    for part in parts:
        text, stop = scanner.feed(part)
        shown += text
        if stop:
            return shown, stop
    return shown + scanner.flush(), ""


@given(st.data(), LETTERS, STOPS)
def test_stop_strings_do_not_depend_on_the_cuts(
    data: st.DataObject, text: str, stops: tuple[str, ...]
) -> None:
    assert scanned(list(text), stops) == first_stop(text, stops)
    assert scanned(pieces(data, text), stops) == first_stop(text, stops)


def test_of_two_that_overlap_the_one_that_ends_first_wins() -> None:
    assert scanned(["abcd"], ("abcd", "bc")) == ("a", "bc")
    assert scanned(["abcd"], ("bcd", "cd")) == ("a", "bcd")


@given(st.data(), LETTERS, STOPS)
def test_nothing_of_a_stop_string_leaks_before_it_is_complete(
    data: st.DataObject, text: str, stops: tuple[str, ...]
) -> None:
    scanner, shown, seen = StopScanner(stops), "", ""
    for part in pieces(data, text):
        fresh, stop = scanner.feed(part)
        shown, seen = shown + fresh, seen + part
        before, _ = first_stop(seen, stops)
        assert before.startswith(shown)
        if stop:
            return
        # And no more is held back than a stop string could still need.
        held = seen[len(shown) :]
        assert not held or any(s.startswith(held) for s in stops)


@pytest.mark.parametrize(("text", "shown"), [("one two", "one"), ("one tw", "one tw")])
def test_text_held_back_comes_out_only_when_it_was_no_stop_string(text: str, shown: str) -> None:
    assert scanned(list(text), (" two",))[0] == shown


@given(st.data(), st.text(max_size=30))
def test_characters_come_out_whole_however_they_are_cut(data: st.DataObject, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    stream, shown = Utf8Stream(), ""
    for part in pieces(data, text.encode()):
        shown += stream.feed(part)
        assert text.startswith(shown)
    assert shown == text


@given(st.data(), st.binary(max_size=40))
def test_broken_bytes_give_the_same_text_however_they_are_cut(
    data: st.DataObject, raw: bytes
) -> None:
    cut, whole = Utf8Stream(), Utf8Stream()
    shown = "".join(cut.feed(part) for part in pieces(data, raw))
    assert shown == whole.feed(raw)
    # Apart from a character cut off at the end, it is what Python makes of the whole.
    assert raw.decode("utf-8", "replace").rstrip("\ufffd").startswith(shown.rstrip("\ufffd"))


def test_an_answer_puts_characters_together_before_it_looks_for_stop_strings() -> None:
    answer = AnswerText(("é!",))
    raw = "café!".encode()
    assert [answer.feed(raw[i : i + 1]) for i in range(len(raw))] == [
        ("c", ""),
        ("a", ""),
        ("f", ""),
        ("", ""),
        ("", ""),
        ("", "é!"),
    ]
