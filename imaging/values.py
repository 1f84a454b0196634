"""What pictures are here: 8-bit sRGB pixels, with alpha where there is any."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Picture:
    """Decoded pixels, upright."""

    rgb: Pixels
    """(height, width, 3), uint8, sRGB; not premultiplied."""
    alpha: Pixels | None = None
    """(height, width), uint8; None: opaque everywhere."""

    @property
    def width_px(self) -> int:
        """Of every row."""
        return int(self.rgb.shape[1])

    @property
    def height_px(self) -> int:
        """Of every column."""
        return int(self.rgb.shape[0])


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is read at all."""

    max_px: int = 40_000_000
    """Pixels of one picture; told to callers whose picture has more."""
    max_side_px: int = 16_384
    """In either direction; WebP writes one less."""
    max_bytes: int = 80 << 20
    """Of the file."""


class Format(Enum):
    """How a picture is written; the value is its IANA media type."""

    PNG = "image/png"
    WEBP = "image/webp"
    JPEG = "image/jpeg"
    PNM = "image/x-portable-anymap"
    """Bare 8-bit pixels behind a short header; written as its exact kind (pgm, ppm, pam)."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a picture is written."""

    format: Format = Format.WEBP
    quality: int = 85
    """1 to 100, for JPEG and lossy WebP; for lossless WebP it is effort."""
    lossless: bool = False
    """WebP without loss."""
    webp_method: int = 4
    """0 (fast) to 6 (small)."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A file."""

    data: bytes
    mime_type: str
