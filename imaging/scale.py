"""Pictures brought to a size.

Lanczos over the whole footprint of a new pixel: what shrinks is averaged, not sampled. Shrinking by
more than three goes in two steps, the first by whole pixels (Pillow's `reducing_gap`).
"""

import numpy as np
from PIL import Image

from imaging.values import Picture, Pixels

_REDUCING_GAP = 3.0


def resize(pixels: Pixels, width_px: int, height_px: int) -> Pixels:
    """(height, width) or (height, width, 3), uint8, to that size."""
    if pixels.shape[:2] == (height_px, width_px):
        return pixels
    return _scaled(Image.fromarray(pixels), width_px, height_px, None)


def cover(picture: Picture, width_px: int, height_px: int) -> Picture:
    """Scaled to cover that size, the middle kept; colours do not bleed from where alpha is 0."""
    left, top, right, bottom = _middle(picture, width_px, height_px)
    if picture.alpha is None:
        image = Image.fromarray(picture.rgb)
        return Picture(_scaled(image, width_px, height_px, (left, top, right, bottom)))
    whole = Image.fromarray(np.dstack([picture.rgb, picture.alpha]))
    done = _scaled(whole, width_px, height_px, (left, top, right, bottom))
    return Picture(np.ascontiguousarray(done[..., :3]), np.ascontiguousarray(done[..., 3]))


def _middle(picture: Picture, width_px: int, height_px: int) -> tuple[float, float, float, float]:
    """The largest box of the new shape in the middle of the picture."""
    scale = min(picture.width_px / width_px, picture.height_px / height_px)
    wide, high = width_px * scale, height_px * scale
    left, top = (picture.width_px - wide) / 2, (picture.height_px - high) / 2
    return left, top, min(left + wide, picture.width_px), min(top + high, picture.height_px)


def _scaled(
    image: Image.Image,
    width_px: int,
    height_px: int,
    box: tuple[float, float, float, float] | None,
) -> Pixels:
    size = (width_px, height_px)
    lanczos = Image.Resampling.LANCZOS
    return np.array(image.resize(size, lanczos, box=box, reducing_gap=_REDUCING_GAP))
