"""The pictures that come with a request: read with bounds, and of the size that is needed.

Blocks; any thread. What is wrong with a file is a Fault of `imaging`, whose metadata names it.
"""

import hashlib
import math

import numpy as np

from imaging.compose import over
from imaging.decode import decode, decode_gray, probe
from imaging.scale import resize
from imaging.values import Bounds, Pixels
from services.diffusion.core.sizes import Settled
from services.diffusion.painter import Inputs
from services.diffusion.values import Asked

_BOUNDS = Bounds()
_WHITE = (255, 255, 255)
_CELL_PX = 32
"""Of references in the native library, at most."""


def init_size(asked: Asked) -> tuple[int, int] | None:
    """(width, height) of the picture to start from, by its header; None: there is none."""
    if not asked.init_image:
        return None
    probed = probe(asked.init_image, _BOUNDS, "init_image")
    return probed.width_px, probed.height_px


def read(asked: Asked, size: Settled) -> Inputs:
    """All pictures of a request whose picture gets that size."""
    width_px, height_px = size.width_px, size.height_px
    init = mask = None
    if asked.init_image:
        init = resize(_flat(asked.init_image, "init_image"), width_px, height_px)
    if asked.mask:
        mask = resize(_mask(asked.mask), width_px, height_px)
    references = [
        _looked_at(_flat(data, f"reference_images[{at}]"), width_px * height_px)
        for at, data in enumerate(asked.reference_images)
    ]
    return Inputs(init, mask, tuple(references), hashes(asked))


def hashes(asked: Asked) -> tuple[str, ...]:
    """Of the files, each with its place: the same picture as a mask is another request."""
    files = (asked.init_image, asked.mask, *asked.reference_images)
    return tuple(hashlib.sha256(data).hexdigest() if data else "" for data in files)


def _flat(data: bytes, field: str) -> Pixels:
    """Without alpha: on white, as on paper."""
    picture = decode(data, _BOUNDS, field)
    return picture.rgb if picture.alpha is None else over(picture.rgb, picture.alpha, _WHITE)


def _mask(data: bytes) -> Pixels:
    """255 is painted. A picture with transparency says it by its alpha: where it is cut out."""
    alpha = decode(data, _BOUNDS, "mask").alpha
    if alpha is not None:
        return np.asarray(255 - alpha, np.uint8)
    return decode_gray(data, _BOUNDS, "mask")


def _looked_at(pixels: Pixels, most_px: int) -> Pixels:
    """No larger than the picture that is made: what it may take of the memory is counted so.

    The native library brings it to as many pixels itself, in whole cells, and ends the process
    where a side would have none: what is too narrow for that is widened.
    """
    height_px, width_px = pixels.shape[:2]
    short_px, long_px = sorted((width_px, height_px))
    ratio = max(short_px / long_px, min(1.0, _CELL_PX**2 / most_px))
    long_px = max(1, min(long_px, int(math.sqrt(most_px / ratio))))
    short_px = max(1, round(long_px * ratio))
    return resize(pixels, *((short_px, long_px) if width_px < height_px else (long_px, short_px)))
