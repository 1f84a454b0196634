"""Pixels to a file.

Colours under alpha 0 are written black, in every format: they cost bytes, and they show what was
cut away. Metadata other than the parameters of its making is not written.
"""

from collections.abc import Callable, Mapping
from io import BytesIO
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image

from chassis.errors import Fault, Reason
from imaging import pnm
from imaging.compose import blacken
from imaging.parameters import text_chunks, user_comment
from imaging.values import Encoded, Encoding, Format, Picture, Pixels

_PNG_LEVEL = 4
"""Half the time of zlib's default for one per cent more bytes."""
_MOST_SIDE_PX = {Format.WEBP: 16_383, Format.JPEG: 65_500}
_FINE_QUALITY = 90
"""From here on JPEG keeps colour at full resolution."""


def encode(
    picture: Picture | Pixels,
    encoding: Encoding,
    parameters: Mapping[str, str] | None = None,
    field: str = "output",
) -> Encoded:
    """A file of `picture`, or of a matte (height, width).

    `parameters` are texts by keyword (see `imaging.parameters`); PNM has no place for them.
    Fault invalid_request where the format cannot hold the picture; `field` names the choice.
    """
    if isinstance(picture, Picture):
        picture = blacken(picture)
    _check(picture, encoding, field)
    if encoding.format is Format.PNM:
        return Encoded(*pnm.write(picture))
    file = BytesIO()
    options = _OPTIONS[encoding.format](encoding, parameters or {})
    _image(picture).save(file, encoding.format.name, **options)
    return Encoded(file.getvalue(), encoding.format.value)


def _check(picture: Picture | Pixels, encoding: Encoding, field: str) -> None:
    pixels, alpha = (
        (picture.rgb, picture.alpha) if isinstance(picture, Picture) else (picture, None)
    )
    if encoding.format is Format.JPEG and alpha is not None:
        raise _cannot(field, "JPEG has no transparency; ask for png or webp, or a background")
    check_side(max(pixels.shape[:2]), encoding, field)


def check_side(side_px: int, encoding: Encoding, field: str = "output") -> None:
    """For who is about to work on a picture with so long a side. Fault invalid_request where the
    format cannot hold it.
    """
    most_px = _MOST_SIDE_PX.get(encoding.format)
    if most_px is not None and side_px > most_px:
        name = encoding.format.name
        raise _cannot(field, f"{name} holds at most {most_px} pixels on a side; ask for png")


def _cannot(field: str, why: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, f"`{field}`: {why}.", metadata={"param": field})


def _image(picture: Picture | Pixels) -> Image.Image:
    if not isinstance(picture, Picture):
        return Image.fromarray(picture)
    if picture.alpha is None:
        return Image.fromarray(picture.rgb)
    return Image.fromarray(np.dstack([picture.rgb, picture.alpha]))


def _png(_: Encoding, parameters: Mapping[str, str]) -> dict[str, Any]:
    return {"compress_level": _PNG_LEVEL, "pnginfo": text_chunks(parameters)}


def _jpeg(encoding: Encoding, parameters: Mapping[str, str]) -> dict[str, Any]:
    fine = encoding.quality >= _FINE_QUALITY
    return {
        "quality": encoding.quality,
        "subsampling": "4:4:4" if fine else "4:2:0",
        "exif": user_comment(parameters),
    }


def _webp(encoding: Encoding, parameters: Mapping[str, str]) -> dict[str, Any]:
    return {
        "quality": encoding.quality,
        "lossless": encoding.lossless,
        "method": encoding.webp_method,
        "exact": True,
        "exif": user_comment(parameters),
    }


_OPTIONS: Mapping[Format, Callable[[Encoding, Mapping[str, str]], dict[str, Any]]] = (
    MappingProxyType({Format.PNG: _png, Format.JPEG: _jpeg, Format.WEBP: _webp})
)
