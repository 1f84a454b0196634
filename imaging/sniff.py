"""What a file is by its first bytes; a name or a declared media type is never believed.

Nothing is parsed here: that is the readers' task.
"""

from enum import Enum


class Kind(Enum):
    """What is read; the value is its IANA media type."""

    PNG = "image/png"
    JPEG = "image/jpeg"
    WEBP = "image/webp"
    GIF = "image/gif"
    BMP = "image/bmp"
    TIFF = "image/tiff"
    AVIF = "image/avif"
    PNM = "image/x-portable-anymap"


_STARTS: tuple[tuple[bytes, Kind], ...] = (
    (b"\x89PNG\r\n\x1a\n", Kind.PNG),
    (b"\xff\xd8\xff", Kind.JPEG),
    (b"GIF87a", Kind.GIF),
    (b"GIF89a", Kind.GIF),
    (b"BM", Kind.BMP),
    (b"II*\0", Kind.TIFF),
    (b"MM\0*", Kind.TIFF),
    (b"II+\0", Kind.TIFF),
    (b"MM\0+", Kind.TIFF),
    (b"P4", Kind.PNM),
    (b"P5", Kind.PNM),
    (b"P6", Kind.PNM),
    (b"P7", Kind.PNM),
)

_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "is a PDF document"),
    (b"\x00\x00\x00\x0cJXL ", "is JPEG XL"),
    (b"\xff\x0a", "is JPEG XL"),
    (b"\x00\x00\x00\x0cjP  ", "is JPEG 2000"),
    (b"\xff\x4f\xff\x51", "is JPEG 2000"),
    (b"\x00\x00\x01\x00", "is a Windows icon"),
    (b"8BPS", "is a Photoshop document"),
    (b"qoif", "is QOI"),
    (b"PK\x03\x04", "is a ZIP archive"),
    (b"\x1f\x8b", "is compressed by gzip"),
    (b"P1", "is PNM written as text"),
    (b"P2", "is PNM written as text"),
    (b"P3", "is PNM written as text"),
    (b"\x1aE\xdf\xa3", "is a video"),
    (b"data:", "is a data URL where bytes are expected: decode its base64 first"),
    (b"http://", "is an address where bytes are expected"),
    (b"https://", "is an address where bytes are expected"),
    (b"iVBORw0K", "is text in base64: decode it first"),
    (b"/9j/", "is text in base64: decode it first"),
    (b"UklGR", "is text in base64: decode it first"),
)

_AVIF_BRANDS = (b"avif", b"avis")


def kind_of(data: bytes) -> Kind | None:
    """None: not a kind that is read."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Kind.WEBP
    if data[4:8] == b"ftyp":
        return Kind.AVIF if any(brand in data[8:64] for brand in _AVIF_BRANDS) else None
    return next((kind for start, kind in _STARTS if data.startswith(start)), None)


def seen_in(data: bytes) -> str:
    """For a file that is not read: what it looks like, to complete "`image` …"."""
    if not data:
        return "is empty"
    if data[4:8] == b"ftyp":
        return "is HEIC" if data[8:10] in {b"he", b"mi"} else "is a video"
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"<"):
        return _markup(head.lower())
    for start, seen in _REFUSED:
        if data.startswith(start):
            return seen
    return "is of no known kind of picture"


def _markup(head: bytes) -> str:
    if b"<svg" in head:
        return "is SVG, a drawing and not pixels"
    if b"<html" in head or b"<!doctype html" in head:
        return "is an HTML page"
    return "is text with markup"
