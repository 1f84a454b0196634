"""Bare pixels behind a short header: PGM (P5), PPM (P6) and PAM (P7); PBM (P4) is read too.

This is how one service hands another a picture that would only be decoded again. The forms in
which numbers are written as text are not read: they take twelve times the memory.
Netpbm's format pages (pbm, pgm, ppm, pam) are the reference.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from imaging.refusals import Unreadable
from imaging.values import Picture, Pixels

_BLANK = rb"(?:\s|#[^\n\r]{0,1000}[\n\r]){1,100}"
_PLAIN = re.compile(
    rb"P[56]" + _BLANK + rb"(\d{1,9})" + _BLANK + rb"(\d{1,9})" + _BLANK + rb"(\d{1,5})\s"
)
_BITS = re.compile(rb"P4" + _BLANK + rb"(\d{1,9})" + _BLANK + rb"(\d{1,9})\s")
_ARBITRARY = re.compile(rb"P7\n((?:[^\n]{0,1000}\n){1,100}?)ENDHDR\n")
_SAMPLES = {b"P4": 1, b"P5": 1, b"P6": 3}


@dataclass(frozen=True, slots=True)
class Header:
    """What a PNM file says of itself."""

    magic: bytes
    width_px: int
    height_px: int
    samples: int
    """Per pixel: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha."""
    most: int
    """The value of white."""
    starts_at: int


def read_header(data: bytes) -> Header:
    """Nothing is allocated."""
    magic = data[:2]
    if magic == b"P7":
        return _arbitrary(data)
    found = (_BITS if magic == b"P4" else _PLAIN).match(data)
    if found is None:
        raise Unreadable("is PNM with a header that cannot be read")
    numbers = [int(number) for number in found.groups()]
    most = numbers[2] if len(numbers) > 2 else 1
    return _checked(Header(magic, numbers[0], numbers[1], _SAMPLES[magic], most, found.end()))


def _arbitrary(data: bytes) -> Header:
    found = _ARBITRARY.match(data)
    if found is None:
        raise Unreadable("is PAM with a header that cannot be read")
    said: dict[bytes, int] = {}
    for line in found.group(1).split(b"\n"):
        name, _, value = line.partition(b" ")
        if name in {b"WIDTH", b"HEIGHT", b"DEPTH", b"MAXVAL"}:
            said[name] = int(value) if re.fullmatch(rb"\d{1,9}", value.strip()) else -1
    width, height = said.get(b"WIDTH", -1), said.get(b"HEIGHT", -1)
    depth, most = said.get(b"DEPTH", -1), said.get(b"MAXVAL", -1)
    return _checked(Header(b"P7", width, height, depth, most, found.end()))


def _checked(header: Header) -> Header:
    if not 1 <= header.samples <= 4:
        raise Unreadable("is PAM of a depth other than 1 to 4")
    if not 1 <= header.most <= 65_535:
        raise Unreadable("is PNM with a white that is not within 1 to 65535")
    if header.width_px < 0 or header.height_px < 0:
        raise Unreadable("is PAM that does not say its width and height")
    return header


def read(data: bytes, header: Header) -> Pixels:
    """(height, width, samples), uint8; values are scaled from the file's white to 255."""
    shape = (header.height_px, header.width_px, header.samples)
    if header.magic == b"P4":
        return _bits(data, header)
    kind: np.dtype[np.unsignedinteger[Any]] = np.dtype("u1" if header.most < 256 else ">u2")
    count = int(np.prod(shape))
    if len(data) - header.starts_at < count * kind.itemsize:
        raise Unreadable("is PNM, cut short")
    values = np.frombuffer(data, kind, count, header.starts_at).reshape(shape)
    if header.most == 255:
        return values.astype(np.uint8)
    return scaled(values, header.most)


def _bits(data: bytes, header: Header) -> Pixels:
    row_bytes = (header.width_px + 7) // 8
    if len(data) - header.starts_at < row_bytes * header.height_px:
        raise Unreadable("is PBM, cut short")
    packed = np.frombuffer(data, np.uint8, row_bytes * header.height_px, header.starts_at)
    bits = np.unpackbits(packed.reshape(header.height_px, row_bytes), axis=1)
    white = np.where(bits[:, : header.width_px] == 0, 255, 0)
    return white.astype(np.uint8)[..., None]


def scaled(
    values: np.ndarray[tuple[int, ...], np.dtype[np.uint8 | np.uint16]], most: int
) -> Pixels:
    """0 to `most` become 0 to 255, rounded, by way of a table."""
    steps = np.arange(65_536 if most > 255 else 256, dtype=np.uint32).clip(max=most)
    table = ((steps * 255 + most // 2) // most).astype(np.uint8)
    return table[values]


def write(picture: Picture | Pixels) -> tuple[bytes, str]:
    """The file and its exact media type."""
    if isinstance(picture, np.ndarray):
        return _plain(b"P5", picture), "image/x-portable-graymap"
    if picture.alpha is None:
        return _plain(b"P6", picture.rgb), "image/x-portable-pixmap"
    height, width = picture.alpha.shape
    lines = f"P7\nWIDTH {width}\nHEIGHT {height}\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n"
    pixels = np.concatenate([picture.rgb, picture.alpha[..., None]], axis=2)
    return lines.encode() + pixels.tobytes(), "image/x-portable-arbitrarymap"


def _plain(magic: bytes, pixels: Pixels) -> bytes:
    return magic + f"\n{pixels.shape[1]} {pixels.shape[0]}\n255\n".encode() + pixels.tobytes()
