"""JPEG files cut down to the segments that make pixels, before the decoder sees them.

Metadata of megabytes is left out; a file made to be decoded hundreds of times over is refused.
(ITU-T T.81, annex B: marker segments.)
"""

import re
from dataclasses import dataclass

from imaging.refusals import Unreadable

_MOST_SEGMENTS = 4096
_MOST_SCANS = 32
"""Every scan of a progressive file passes over all of its pixels; writers use about ten."""

_MARKER = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)
_START_OF_SCAN = 0xDA
_BARE = frozenset({0x01, 0xD8, *range(0xD0, 0xD8)})
"""Markers without a length behind them."""
_LEFT_OUT = frozenset({0xE1, *range(0xE3, 0xEE), 0xEF, 0xFE})
"""APP1 (EXIF, XMP), APP3 to APP13, APP15 and comments; JFIF, ICC and Adobe's say colours."""


@dataclass(frozen=True, slots=True)
class Sifted:
    """What of a JPEG file is decoded."""

    data: bytes
    exif: bytes


def sift(data: bytes, *, head: bool = False) -> Sifted:
    """The same picture without what does not make it; `head`: as far as it is read when opened."""
    view = memoryview(data)
    kept, exif, at = [view[:2]], b"", 2
    for _ in range(_MOST_SEGMENTS):
        at, marker = _next_marker(data, at)
        if marker in _BARE:
            continue
        end = at + int.from_bytes(data[at : at + 2], "big")
        if end < at + 2:
            raise Unreadable("is JPEG with a segment that has no end")
        if marker == 0xE1 and data[at + 2 : at + 8] == b"Exif\0\0":
            exif = exif or data[at + 8 : end]
        if marker == _START_OF_SCAN and head:
            kept.append(view[at - 2 : end])
            return Sifted(b"".join(kept), exif)
        if marker == _START_OF_SCAN:
            kept.append(view[at - 2 :])
            return Sifted(_few_scans(b"".join(kept)), exif)
        if marker not in _LEFT_OUT:
            kept.append(view[at - 2 : end])
        at = end
    raise Unreadable(f"is JPEG with more than {_MOST_SEGMENTS} segments before its picture")


def _next_marker(data: bytes, at: int) -> tuple[int, int]:
    """Where what follows the marker begins, and the marker; fill bytes are passed over."""
    found = _MARKER.search(data, at)
    if found is None:
        raise Unreadable("is JPEG, cut short before its picture begins")
    return found.end(), data[found.end() - 1]


def _few_scans(data: bytes) -> bytes:
    if data.count(b"\xff\xda") > _MOST_SCANS:
        raise Unreadable(f"is JPEG in more than {_MOST_SCANS} scans")
    return data
