"""Whose a request is, by its header."""

import pytest
from starlette.datastructures import Headers

from chassis.errors import Fault
from edge.fairness import HEADER, key_of


@pytest.mark.parametrize(
    ("given", "key"), [("ann", "ann"), (" a b\t", "a b"), ("x" * 128, "x" * 128), ("~!", "~!")]
)
def test_a_key_is_trimmed(given: str, key: str) -> None:
    assert key_of(Headers({HEADER: given})) == key


def test_without_the_header_there_is_none() -> None:
    assert key_of(Headers({})) == ""


@pytest.mark.parametrize("given", ["", " ", "x" * 129, "a\tb", "a\x7fb", "kéy"])
def test_what_is_no_key_is_refused_by_the_header_s_name(given: str) -> None:
    with pytest.raises(Fault) as caught:
        key_of(Headers({HEADER: given}))
    assert caught.value.metadata == {"param": HEADER}
