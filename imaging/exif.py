"""How a camera was held, from EXIF; and EXIF that carries one text.

Only the orientation is read: a general parser copies every value a directory points to, and a
small file can point to the same large block sixty thousand times.
"""

import struct

from PIL import Image

_ORIENTATION = 0x0112
_SHORT = 3
_MOST_ENTRIES = 512

UPRIGHT = 1

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What makes a picture of that orientation upright (TIFF 6.0, tag 274)."""


def orientation(exif: bytes) -> int:
    """1 to 8; 1 (upright) for anything that cannot be made sense of."""
    tiff = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return UPRIGHT
    try:
        (start,) = struct.unpack_from(order + "4xI", tiff)
        value = _first_directory(tiff, order, start)
    except struct.error:
        return UPRIGHT
    return value if value in TURNS else UPRIGHT


def _first_directory(tiff: bytes, order: str, start: int) -> int:
    (count,) = struct.unpack_from(order + "H", tiff, start)
    for entry in range(min(count, _MOST_ENTRIES)):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * entry)
        if tag == _ORIENTATION:
            return int(value) if kind == _SHORT else UPRIGHT
    return UPRIGHT


def swaps_sides(turn: int) -> bool:
    """Whether width and height change places on the way to upright."""
    return turn >= 5
