"""PNG files cut down to the chunks that make pixels, before the decoder sees them.

Text that inflates to gigabytes, ten thousand animation frames and broken metadata are left out,
not refused: the picture is fine without. (PNG specification, third edition: chunk layout in 5.3,
tRNS in 11.3.1.1.)
"""

import struct
import zlib
from dataclasses import dataclass

from PIL import Image

from imaging.refusals import Unreadable

_SIGNATURE_BYTES = 8
_NAMED_BYTES = 8
"""Length and name of a chunk."""
_MOST_CHUNKS = 65_536
_MOST_PROFILE_BYTES = 4 << 20
_KEPT = frozenset({b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"iCCP"})


@dataclass(frozen=True, slots=True)
class Sifted:
    """What of a PNG file is decoded."""

    data: bytes
    exif: bytes
    bit_depth: int


def sift(data: bytes, *, head: bool = False) -> Sifted:
    """The same picture without what does not make it; `head`: as far as it is read when opened."""
    kept = [memoryview(data)[:_SIGNATURE_BYTES]]
    exif = b""
    for name, chunk in _chunks(data):
        if name == b"eXIf":
            exif = exif or bytes(chunk[8:-4])
        elif name in _KEPT and _is_sound(name, chunk):
            kept.append(chunk[:_NAMED_BYTES] if head and name == b"IDAT" else chunk)
    depth = data[24] if len(data) > 24 else 0
    return Sifted(b"".join(kept), exif, depth)


def _chunks(data: bytes) -> list[tuple[bytes, memoryview]]:
    """Name and whole chunk (length, name, body, sum), up to IEND or to where the file is cut."""
    view, at = memoryview(data), _SIGNATURE_BYTES
    found: list[tuple[bytes, memoryview]] = []
    while at + 8 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        name = data[at + 4 : at + 8]
        found.append((name, view[at : at + 12 + size]))
        at += 12 + size
        if name == b"IEND":
            break
        if len(found) > _MOST_CHUNKS:
            raise Unreadable(f"is PNG in more than {_MOST_CHUNKS} pieces")
    return found


def _is_sound(name: bytes, chunk: memoryview) -> bool:
    """Chunks that a picture can do without are left out when they are broken."""
    if name not in {b"iCCP", b"tRNS"}:
        return True
    body = chunk[8:-4]
    whole = zlib.crc32(chunk[4:-4]).to_bytes(4, "big") == bytes(chunk[-4:])
    return whole and (name != b"iCCP" or _inflates_within(body, _MOST_PROFILE_BYTES))


def _inflates_within(body: memoryview, most_bytes: int) -> bool:
    _, _, rest = bytes(body).partition(b"\0")
    inflating = zlib.decompressobj()
    try:
        inflating.decompress(rest[1:], most_bytes)
    except zlib.error:
        return False
    return inflating.eof


def mend_key(image: Image.Image, bit_depth: int) -> Image.Image:
    """Bring the transparent colour to the 8 bits that the decoder has brought the pixels to."""
    key = image.info.get("transparency")
    if image.mode == "L" and isinstance(key, int) and bit_depth in {2, 4}:
        image.info["transparency"] = key * 255 // ((1 << bit_depth) - 1)
    if image.mode == "RGB" and isinstance(key, tuple) and bit_depth == 16:
        image.info["transparency"] = tuple(part >> 8 for part in key)
    return image
