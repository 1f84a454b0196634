"""What goes over a link, as bytes: a length, and one message in MessagePack. Pure."""

from collections.abc import Iterator
from enum import IntEnum

import msgspec

_LENGTH_BYTES = 4


class Kind(IntEnum):
    """What a frame is."""

    TELL = 0
    """A call without an answer."""
    CALL = 1
    ANSWER = 2
    FAULT = 3


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """One message."""

    kind: Kind
    number: int
    """Of the call; 0 of what is only told."""
    method: str
    body: msgspec.Raw


class TooLarge(Exception):
    """A frame beyond the bound: the other end is no end of ours, or the bound is wrong."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


def packed(kind: Kind, number: int, method: str, body: bytes) -> bytes:
    """The bytes of a frame; `body`: MessagePack."""
    whole = _encode(Frame(kind, number, method, msgspec.Raw(body)))
    return len(whole).to_bytes(_LENGTH_BYTES) + whole


class Unpacker:
    """Frames out of a stream of bytes; one has at most `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes in; every frame that is whole now. Raises TooLarge."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(self._buffer[:_LENGTH_BYTES])
            if length > self._most_bytes:
                raise TooLarge(f"a frame of {length} bytes, at most {self._most_bytes} expected")
            end = _LENGTH_BYTES + length
            if len(self._buffer) < end:
                return
            whole = bytes(self._buffer[_LENGTH_BYTES:end])
            del self._buffer[:end]
            yield _decode(whole)
