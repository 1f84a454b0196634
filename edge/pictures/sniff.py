"""What a file is, and the size of the picture in it, by its first bytes. Pure.

Never by its name or by what its sender says. Nothing is decoded: whether the rest is a picture,
the engine finds out, which reads it for good. None of the sizes is the truth about a picture that
its camera held upright: width and height may be exchanged.
"""

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType

Size = tuple[int, int]
"""Width and height, in pixels."""

_ISO_BRANDS: Mapping[bytes, str] = MappingProxyType(
    {b"avif": "image/avif", b"avis": "image/avif", b"heic": "image/heic", b"mif1": "image/heic"}
)
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_BARE = frozenset((0x01, *range(0xD0, 0xD9)))
"""Markers that nothing follows."""


def mime_type_of(data: bytes) -> str:
    """The media type of a picture; empty: no picture that is known here."""
    for magic, mime_type in _MAGIC.items():
        if data.startswith(magic):
            return mime_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[4:8] == b"ftyp":
        return _ISO_BRANDS.get(data[8:12], "")
    return ""


def size_of(data: bytes) -> Size | None:
    """The size that a picture's header tells; None: it tells none that is understood here."""
    reader = _SIZES.get(mime_type_of(data))
    try:
        return None if reader is None else reader(data)
    except (struct.error, IndexError, ValueError):
        return None


_MAGIC: Mapping[bytes, str] = MappingProxyType(
    {
        b"\x89PNG\r\n\x1a\n": "image/png",
        b"\xff\xd8\xff": "image/jpeg",
        b"GIF87a": "image/gif",
        b"GIF89a": "image/gif",
        b"BM": "image/bmp",
        b"II*\x00": "image/tiff",
        b"MM\x00*": "image/tiff",
        **{b"P%d" % kind: "image/x-portable-anymap" for kind in range(1, 8)},
    }
)


def _png(data: bytes) -> Size:
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> Size:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp(data: bytes) -> Size:
    width, height = struct.unpack_from("<ii", data, 18)
    return width, abs(height)  # negative: from the top down


def _jpeg(data: bytes) -> Size | None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        if marker == 0xFF:  # fill
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def _webp(data: bytes) -> Size | None:
    match data[12:16]:
        case b"VP8X":
            wide, high = (
                int.from_bytes(data[24:27], "little"),
                int.from_bytes(data[27:30], "little"),
            )
            return wide + 1, high + 1
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    return None


def _anymap(data: bytes) -> Size | None:
    if data[1:2] == b"7":
        return None
    words = [
        word
        for line in data[2:512].splitlines()
        if not line.startswith(b"#")
        for word in line.split()
    ]
    return int(words[0]), int(words[1])


_SIZES: Mapping[str, Callable[[bytes], Size | None]] = MappingProxyType(
    {
        "image/png": _png,
        "image/jpeg": _jpeg,
        "image/webp": _webp,
        "image/gif": _gif,
        "image/bmp": _bmp,
        "image/x-portable-anymap": _anymap,
    }
)
