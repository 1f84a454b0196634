"""How a camera was held, from EXIF.

Only the orientation is read: a general parser copies every value a directory points to, and a
small file can point to the same large block sixty thousand times.
"""

from PIL import Image

from imaging import tiff

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

_ORIENTATION = 0x0112


def orientation(exif: bytes) -> int:
    """1 to 8; 1 (upright) for anything that cannot be made sense of."""
    for entry in tiff.entries(exif.removeprefix(b"Exif\0\0")):
        if entry.tag == _ORIENTATION:
            known = (entry.kind, entry.count) == (tiff.SHORT, 1) and entry.value in TURNS
            return entry.value if known else UPRIGHT
    return UPRIGHT


def swaps_sides(turn: int) -> bool:
    """Whether width and height change places on the way to upright."""
    return turn >= 5
