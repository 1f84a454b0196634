"""What goes over a link comes out as it went in, however the stream of bytes is cut."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.workers.frames import Kind, TooLarge, Unpacker, packed

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(Kind),
        st.integers(0, 2**40),
        st.text(max_size=20),
        st.binary(max_size=300),
    ),
    max_size=12,
)


@given(MESSAGES, st.lists(st.integers(1, 200), min_size=1))
def test_frames_survive_any_cutting(
    messages: list[tuple[Kind, int, str, bytes]], cuts: list[int]
) -> None:
    encode = msgspec.msgpack.encode
    stream = b"".join(packed(kind, no, name, encode(body)) for kind, no, name, body in messages)
    unpacker, out, at, turn = Unpacker(10**6), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        out += list(unpacker.feed(stream[at : at + size]))
        at, turn = at + size, turn + 1
    told = [(it.kind, it.number, it.method, msgspec.msgpack.decode(it.body)) for it in out]
    assert told == messages


def test_a_frame_beyond_the_bound_is_refused_before_it_is_there() -> None:
    frame = packed(Kind.TELL, 0, "m", msgspec.msgpack.encode(b"x" * 500))
    with pytest.raises(TooLarge, match="at most 400"):
        list(Unpacker(400).feed(frame[:8]))
    assert len(list(Unpacker(600).feed(frame))) == 1
