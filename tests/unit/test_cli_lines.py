"""Lines of the services: cut, bounded, prefixed, and never in the way."""

import os

from hypothesis import given
from hypothesis import strategies as st

from cli.lines import Screen, Splitter


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"x", b"\n"))))
def test_splitting_does_not_depend_on_how_the_bytes_arrive(pieces: list[bytes]) -> None:
    splitter = Splitter(limit=1000)
    lines = [line for piece in pieces for line in splitter.feed(piece)] + list(splitter.end())
    whole = b"".join(pieces)
    expected = whole.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


@given(st.lists(st.binary(max_size=50)), st.integers(1, 9))
def test_no_line_is_longer_than_the_limit_and_no_byte_is_lost(
    pieces: list[bytes], limit: int
) -> None:
    splitter = Splitter(limit)
    lines = [line for piece in pieces for line in splitter.feed(piece)] + list(splitter.end())
    assert all(len(line) <= limit for line in lines)
    assert b"".join(lines) == b"".join(pieces).replace(b"\n", b"")


def test_prefixes_are_aligned_and_plain_without_a_terminal() -> None:
    reader, writer = os.pipe()
    screen = Screen(writer, ["llm", "broker"])
    screen.line("llm", "a\x1b[31mb")
    screen.line("broker", "c")
    screen.page("d")
    screen.close()
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"llm    | a[31mb\nbroker | c\nd\n"


def test_a_held_screen_drops_lines_and_says_how_many() -> None:
    reader, writer = os.pipe()
    screen = Screen(writer, ["a"], capacity=1)
    with os.fdopen(reader, "rb", buffering=0) as file:
        for _ in range(10):  # each is more than a pipe holds: at most two are taken
            screen.line("a", "x" * 200_000)
        received = b""
        while b"(" not in received:
            received += file.read(1_000_000)
            screen.line("a", "end")
        screen.close()
    os.close(writer)
    assert b"lines were not shown)" in received
