"""The first directory of a TIFF structure: of a TIFF file, and of the EXIF in other files.

Read before the library reads it, which makes an object of every strip that a directory names and
a copy of every value that it points to. TIFF 6.0, section 2: header and directories.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from imaging.refusals import Unreadable
from imaging.values import Bounds

SHORT, LONG = 3, 4

_BYTE_KINDS = frozenset({1, 2, 6, 7})
"""Types whose values stay bytes, however many."""
_MOST_VALUES = 65_536
_PHOTOMETRIC = 262
_COMPRESSION, _TILE_WIDTH, _TILE_LENGTH = 259, 322, 323
_COMPRESSIONS = frozenset({1, 2, 3, 4, 5, 7, 8, 32_773, 32_946})
"""None, CCITT, LZW, JPEG, deflate, PackBits: none that brings a size of its own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a directory."""

    tag: int
    kind: int
    count: int
    value: int
    """Of a single SHORT or LONG; of anything longer, where it stands in the file."""


def entries(data: bytes) -> Iterator[Entry]:
    """Of the first directory, as far as the bytes go; none where there is no TIFF structure."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        return
    try:
        (start,) = struct.unpack_from(order + "I", data, 4)
        (count,) = struct.unpack_from(order + "H", data, start)
        for at in range(start + 2, start + 2 + 12 * count, 12):
            tag, kind, values, _ = struct.unpack_from(order + "HHII", data, at)
            size = "H" if (kind, values) == (SHORT, 1) else "I"
            yield Entry(tag, kind, values, struct.unpack_from(order + size, data, at + 8)[0])
    except struct.error:
        return


def check(data: bytes, bounds: Bounds) -> None:
    """Raises for a directory that asks for more than a picture within bounds can need."""
    tile = {_TILE_WIDTH: 1, _TILE_LENGTH: 1}
    for entry in entries(data):
        if entry.count > _MOST_VALUES and entry.kind not in _BYTE_KINDS:
            raise Unreadable(f"is TIFF with more than {_MOST_VALUES} strips or tiles")
        if entry.tag == _COMPRESSION and entry.value not in _COMPRESSIONS:
            raise Unreadable("is TIFF packed in a way that is not read; LZW, deflate and JPEG are")
        if entry.tag in tile:
            tile[entry.tag] = max(tile[entry.tag], entry.value)
    if tile[_TILE_WIDTH] * tile[_TILE_LENGTH] > bounds.max_px:
        raise Unreadable("is TIFF with a tile larger than any picture that is read")


def is_negative(data: bytes) -> bool:
    """Whether 0 is white."""
    return any(entry.tag == _PHOTOMETRIC and entry.value == 0 for entry in entries(data))


def mend_negative(image: Image.Image) -> Image.Image:
    """The reader turns 8 bits over, but not 16."""
    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray(65_535 - np.asarray(image).astype(np.uint16))
