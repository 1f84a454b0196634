"""How heavy an expression is: repetitions multiply, wherever they are hidden."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.llm.regex_bounds import MAX_WEIGHT, weigh
from services.llm.unfit import Unfit


@pytest.mark.parametrize(
    ("expression", "positions"),
    [
        ("", 0),
        ("abc", 3),
        ("^a|b$", 2),
        ("a*b+c?", 3),
        ("a{3}", 3),
        ("a{2,5}b", 6),
        ("a{2,}", 2),
        ("a{0}", 1),
        ("(ab){3}", 6),
        ("((a{2}b){3}c){4}", 40),
        ("[a-z]{3}", 3),
        ("[]a]{3}", 3),
        ("[^]a]{3}", 3),
        ("[a[b]c]{3}", 3),
        (r"[\]]{3}", 3),
        (r"\d{4}-\d{2}", 7),
        (r"\p{Greek}{3}", 3),
        (r"\x{41}{3}", 3),
        (r"\({3}", 3),
        ("(?:a){3}", 3),
        ("(?<name>a){3}", 3),
        ("(?i)a{3}", 3),
        ("(a[)]){3}", 6),
        ("(a[-)]{2}){3}", 9),
        ("a{x}", 4),
    ],
)
def test_positions(expression: str, positions: int) -> None:
    assert weigh(expression) == positions


@pytest.mark.parametrize(
    "expression",
    [
        "a{1001}",
        "a{500,}b{501}",
        "(a{100}){100}",
        "(a{100}[)]){100}",
        "((a{20}){20}){20}",
        "(a{99}|b){99}",
        "a{99999999999999999999}",
        "a{1,99999999999999999999}",
        "(?x) (a{99}) {99}",
        "(?sx:(a{99}) {99})",
        "(" * 51,
        "a" * 1001,
        r"(a{99}\)){99}",
        "([[)]]a{99}){99}",
    ],
)
def test_too_heavy(expression: str) -> None:
    with pytest.raises(Unfit):
        weigh(expression)


@given(st.text("ab()[]{}0123456789,\\^|*?-", max_size=60))
def test_junk_is_weighed_or_refused(expression: str) -> None:
    with contextlib.suppress(Unfit):
        assert 0 <= weigh(expression) <= MAX_WEIGHT
