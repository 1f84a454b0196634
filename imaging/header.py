"""The size of a picture by its header, for who serves others meanwhile: nothing is copied or
decoded, and no more is read than leads to the answer.

Whether the rest is a picture, `decode` finds out. A size is not the truth about a picture that its
camera held upright: width and height may be exchanged.
"""

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType

from imaging import pnm, tiff, webp
from imaging.refusals import Unreadable
from imaging.sniff import Kind, kind_of

Size = tuple[int, int]
"""Width and height, in pixels."""

_MOST_SEGMENTS = 4096
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers that nothing follows."""
_START_OF_SCAN = 0xDA
_WIDTH, _HEIGHT = 256, 257


def size_px(data: bytes) -> Size | None:
    """None: the header tells none, or `data` is no picture of a kind that is read."""
    kind = kind_of(data)
    if kind is None:
        return None
    try:
        return _READERS[kind](data)
    except (struct.error, IndexError, Unreadable):
        return None


def _png(data: bytes) -> Size:
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _jpeg(data: bytes) -> Size | None:
    """Of the last frame that is announced before the pixels begin: the one that readers take."""
    at, size = 2, None
    for _ in range(_MOST_SEGMENTS):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == _START_OF_SCAN:
            return size
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            size = width, height
        if marker == 0xFF:  # fill
            at += 1
        elif marker in _BARE:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def _gif(data: bytes) -> Size:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> Size:
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)  # negative: from the top down


def _tiff(data: bytes) -> Size | None:
    sides = {entry.tag: entry.value for entry in tiff.entries(data) if entry.count == 1}
    if not sides.keys() >= {_WIDTH, _HEIGHT}:
        return None
    return sides[_WIDTH], sides[_HEIGHT]


def _pnm(data: bytes) -> Size:
    header = pnm.read_header(data)
    return header.width_px, header.height_px


_READERS: Mapping[Kind, Callable[[bytes], Size | None]] = MappingProxyType(
    {
        Kind.PNG: _png,
        Kind.JPEG: _jpeg,
        Kind.WEBP: webp.size_px,
        Kind.GIF: _gif,
        Kind.BMP: _bmp,
        Kind.TIFF: _tiff,
        Kind.PNM: _pnm,
    }
)
