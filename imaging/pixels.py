"""From the many ways in which a file holds pixels to the one in `values`: 8 bits, sRGB, alpha.

16-bit samples are scaled, not clipped. 32-bit and floating-point samples are refused: what white
is in them, no file says.
"""

import numpy as np
from PIL import Image

from imaging.pnm import scaled
from imaging.profiles import to_srgb
from imaging.refusals import Unreadable
from imaging.values import Picture, Pixels

_GRAY_16 = frozenset({"I;16", "I;16B", "I;16L", "I;16N"})
_GRAY = frozenset({"1", "L", "LA", "La"})
_WITH_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_REFUSED = {
    "I": "has samples of 32 bits; 8 or 16 are read",
    "F": "has samples in floating point; 8 or 16 bits are read",
    "LAB": "is in the colour space Lab; RGB, grey and CMYK are read",
}


def picture_of(image: Image.Image) -> Picture:
    """Colours by the embedded profile, where there is one."""
    base, alpha = _parted(image)
    rgb = to_srgb(base, image.info.get("icc_profile"))
    return Picture(np.array(rgb), alpha)


def gray_of(image: Image.Image) -> Pixels:
    """(height, width): alpha where any pixel is not opaque, else brightness (Rec. 601)."""
    base, alpha = _parted(image)
    return np.array(base.convert("L")) if alpha is None else alpha


def _parted(image: Image.Image) -> tuple[Image.Image, Pixels | None]:
    """L, RGB or CMYK, and the alpha beside it; None when everything is opaque."""
    if image.mode in _REFUSED:
        raise Unreadable(_REFUSED[image.mode])
    if image.mode in _GRAY_16:
        return _from_16_bits(image)
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        whole = image.convert("RGBA")
        alpha = np.array(whole.getchannel("A"))
        gray = image.mode in _GRAY
        return whole.convert("L" if gray else "RGB"), _unless_opaque(alpha)
    if image.mode in {"1", "L"}:
        return image.convert("L"), None
    return (image if image.mode == "CMYK" else image.convert("RGB")), None


def _from_16_bits(image: Image.Image) -> tuple[Image.Image, Pixels | None]:
    values = np.asarray(image).astype(np.uint16)
    key = image.info.get("transparency")
    alpha = None
    if isinstance(key, int):
        alpha = _unless_opaque(np.where(values == key, 0, 255).astype(np.uint8))
    return Image.fromarray(scaled(values, 65_535)), alpha


def _unless_opaque(alpha: Pixels) -> Pixels | None:
    return None if int(alpha.min()) == 255 else alpha
