"""Bytes of a picture to pixels, within bounds; every way in which they can be wrong is a fault.

    first bytes → cut down to what makes pixels → header → bounds → decode → upright → sRGB

Colours and masks part only at the end: a mask's numbers are not colours and pass no profile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image

from chassis.errors import Fault
from imaging import pnm
from imaging.opening import open_header
from imaging.pixels import gray_of, picture_of
from imaging.refusals import Unreadable, check_size, invalid, too_many_bytes
from imaging.sniff import Kind, kind_of, seen_in
from imaging.values import Bounds, Picture, Pixels


@dataclass(frozen=True, slots=True)
class Probed:
    """What the header of a file says; the pixels may still turn out broken."""

    width_px: int
    """Upright, as `decode` would give it."""
    height_px: int
    mime_type: str
    """By the bytes, whatever the file was called."""


def probe(data: bytes, bounds: Bounds, field: str) -> Probed:
    """Size and type from the header alone, of which nothing is copied; Fault as `decode`'s."""
    kind = _kind(data, bounds, field)
    with _faults(field, kind):
        if kind is Kind.PNM:
            header = _pnm_header(data, bounds, field)
            return Probed(header.width_px, header.height_px, kind.value)
        opened = open_header(data, kind, bounds, field, head=True)
        return Probed(*opened.size_px(), kind.value)


def decode(data: bytes, bounds: Bounds, field: str) -> Picture:
    """The first picture of the file, upright, in sRGB; without alpha when all of it is opaque.

    Fault: invalid_image (what it is instead, or that it is broken), image_too_large (by its
    header, before anything is allocated), payload_too_large. `field` is the caller's name for it.
    """
    kind = _kind(data, bounds, field)
    with _faults(field, kind):
        if kind is Kind.PNM:
            return _pnm_picture(pnm.read(data, _pnm_header(data, bounds, field)))
        return picture_of(open_header(data, kind, bounds, field).load())


def decode_gray(data: bytes, bounds: Bounds, field: str) -> Pixels:
    """(height, width) of a mask or matte: its alpha where any of it is not opaque, else brightness.

    Fault as `decode`'s.
    """
    kind = _kind(data, bounds, field)
    with _faults(field, kind):
        if kind is Kind.PNM:
            return _pnm_gray(pnm.read(data, _pnm_header(data, bounds, field)))
        return gray_of(open_header(data, kind, bounds, field).load())


def _kind(data: bytes, bounds: Bounds, field: str) -> Kind:
    if len(data) > bounds.max_bytes:
        raise too_many_bytes(field, len(data), bounds)
    kind = kind_of(data)
    if kind is None:
        raise invalid(field, seen_in(data))
    return kind


@contextmanager
def _faults(field: str, kind: Kind) -> Iterator[None]:
    """Whatever a reader raises over a file is the file's fault: they raise a dozen types."""
    try:
        yield
    except Fault:
        raise
    except Unreadable as wrong:
        raise invalid(field, str(wrong)) from None
    except Exception as wrong:
        cut = isinstance(wrong, EOFError) or "truncated" in str(wrong).lower()
        how = "cut short" if cut else "damaged"
        raise invalid(field, f"is {kind.name} that is {how} and cannot be decoded") from wrong


def _pnm_header(data: bytes, bounds: Bounds, field: str) -> pnm.Header:
    header = pnm.read_header(data)
    check_size(field, header.width_px, header.height_px, bounds)
    return header


def _pnm_picture(values: Pixels) -> Picture:
    samples = values.shape[2]
    rgb = values[..., :3] if samples >= 3 else np.repeat(values[..., :1], 3, axis=2)
    alpha = values[..., -1] if samples in {2, 4} else None
    opaque = alpha is None or int(alpha.min()) == 255
    return Picture(
        np.ascontiguousarray(rgb), None if opaque or alpha is None else np.ascontiguousarray(alpha)
    )


def _pnm_gray(values: Pixels) -> Pixels:
    picture = _pnm_picture(values)
    if picture.alpha is not None:
        return picture.alpha
    return np.array(Image.fromarray(picture.rgb).convert("L"))
