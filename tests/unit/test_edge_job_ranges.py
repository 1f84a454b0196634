"""Which bytes a request wants: every header that can be written, against what RFC 9110 says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.jobs.ranges import (
    Span,
    UnchangedError,
    UnsatisfiableError,
    etag_of,
    wanted_span,
)

TAG = etag_of(b"\x01\x02")
SIZE = 10

numbers = st.integers(0, 30)


def wanted(range_: str, size: int = SIZE) -> Span | None:
    return wanted_span({"range": range_}, size, TAG)


def wanted_if(if_range: str) -> Span | None:
    return wanted_span({"range": "bytes=2-", "if-range": if_range}, SIZE, TAG)


@given(numbers, numbers, st.integers(0, 20))
def test_a_closed_range_is_what_slicing_says(first: int, last: int, size: int) -> None:
    data = bytes(range(size))
    expected = data[first : last + 1] if last >= first else data
    try:
        span = wanted(f"bytes={first}-{last}", size)
    except UnsatisfiableError:
        assert first >= size
        return
    got = data if span is None else data[span.first : span.end]
    assert got == expected
    assert span is None or 0 <= span.first < span.end <= size


@given(numbers, st.integers(0, 20))
def test_an_open_range_goes_to_the_end(first: int, size: int) -> None:
    if first >= size:
        with pytest.raises(UnsatisfiableError):
            wanted(f"bytes={first}-", size)
    else:
        assert wanted(f"bytes={first}-", size) == Span(first, size)


@given(numbers, st.integers(0, 20))
def test_a_suffix_is_the_end(length: int, size: int) -> None:
    if not length or not size:
        with pytest.raises(UnsatisfiableError):
            wanted(f"bytes=-{length}", size)
    else:
        assert wanted(f"bytes=-{length}", size) == Span(max(0, size - length), size)


@given(st.text(max_size=30))
def test_whatever_is_written_there_is_an_answer(text: str) -> None:
    try:
        span = wanted(text)
    except UnsatisfiableError:
        return
    assert span is None or 0 <= span.first < span.end <= SIZE


@pytest.mark.parametrize(
    "given_",
    ["", "bytes=", "bytes=-", "bytes=1-2,4-5", "items=0-1", "bytes=a-b", "bytes=5-2", "bytes=٣-"],
)
def test_what_cannot_be_served_is_the_whole(given_: str) -> None:
    assert wanted(given_) is None


def test_a_range_of_something_else_is_the_whole() -> None:
    assert wanted_if(TAG) == Span(2, SIZE)
    assert wanted_if('"other"') is None
    assert wanted_if("Mon, 30 Nov 2026 04:00:00 GMT") is None


def test_the_unit_is_written_in_any_case() -> None:
    assert wanted("Bytes=2-") == Span(2, SIZE)


@pytest.mark.parametrize("known", [TAG, f"W/{TAG}", f'"a", {TAG}', "*", f' "b",W/{TAG} '])
def test_what_is_known_is_unchanged(known: str) -> None:
    with pytest.raises(UnchangedError):
        wanted_span({"if-none-match": known, "range": "bytes=2-"}, SIZE, TAG)


@pytest.mark.parametrize("known", ["", '"a"', TAG.strip('"'), '"a", "b"'])
def test_what_is_not_known_is_sent(known: str) -> None:
    assert wanted_span({"if-none-match": known}, SIZE, TAG) is None
