"""Embedded colour profiles: pixels are brought to sRGB; a broken profile is ignored."""

from functools import lru_cache
from io import BytesIO

from PIL import Image, ImageCms

_MOST_PROFILE_BYTES = 4 << 20
_MODES = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""ICC.1 7.2.6: the colour space of a profile, and the mode of pixels that it can speak of."""


@lru_cache(maxsize=1)
def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


def to_srgb(image: Image.Image, icc: bytes | None) -> Image.Image:
    """RGB; `image` is L, RGB or CMYK."""
    if icc and len(icc) <= _MOST_PROFILE_BYTES:
        try:
            return _transformed(image, icc)
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError, AttributeError):
            pass
    return image.convert("RGB")


def _transformed(image: Image.Image, icc: bytes) -> Image.Image:
    profile = ImageCms.ImageCmsProfile(BytesIO(icc))
    space = profile.profile.xcolor_space
    if _MODES.get(space) != image.mode or _is_srgb(profile):
        return image.convert("RGB")
    done = ImageCms.profileToProfile(image, profile, _srgb(), outputMode="RGB")
    return image.convert("RGB") if done is None else done


def _is_srgb(profile: ImageCms.ImageCmsProfile) -> bool:
    """By its name: cameras and browsers write a dozen profiles that mean exactly this one."""
    name = profile.profile.profile_description or ""
    return name.lower().startswith("srgb")
