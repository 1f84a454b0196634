"""One picture over another, and what nobody sees made black.

Work goes in bands of rows: beside the result no more than a few mebibytes are taken, however
large the picture.
"""

from collections.abc import Iterator

import numpy as np

from imaging.values import Picture, Pixels

_BAND_PX = 1 << 18


def over(rgb: Pixels, alpha: Pixels, backdrop_rgb: Pixels | tuple[int, int, int]) -> Pixels:
    """`rgb` with `alpha` over `backdrop_rgb`, of the same size or one colour: a F + (1 - a) B.

    (height, width, 3) uint8; each value is the exact quotient by 255, rounded to the nearest.
    Porter and Duff 1984, "over", in the encoded values as browsers do it.
    """
    ground = np.asarray(backdrop_rgb, np.uint8)
    if ground.shape not in {(3,), rgb.shape}:
        raise ValueError(f"a backdrop of {ground.shape} under a picture of {rgb.shape}")
    done = np.empty_like(rgb)
    for rows in _bands(rgb):
        share = alpha[rows][..., None].astype(np.uint16)
        mixed = rgb[rows] * share
        mixed += (ground if ground.ndim == 1 else ground[rows]) * (255 - share)
        mixed += 128
        mixed += mixed >> 8  # exact for every product of two bytes
        done[rows] = mixed >> 8
    return done


def blacken(picture: Picture) -> Picture:
    """The same picture, its colours black where it is fully transparent."""
    if picture.alpha is None:
        return picture
    return Picture(picture.rgb * (picture.alpha != 0)[..., None], picture.alpha)


def _bands(rgb: Pixels) -> Iterator[slice]:
    step = max(1, _BAND_PX // max(1, rgb.shape[1]))
    return (slice(top, top + step) for top in range(0, rgb.shape[0], step))
