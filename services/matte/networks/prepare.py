"""A picture as the network's input, and the network's output as a matte. Pure.

Both directions scale with imaging's one way to scale; the matte is quantised at the network's size.
"""

import numpy as np
from numpy.typing import NDArray

from chassis.errors import Fault, Reason
from imaging.scale import resize
from imaging.values import Pixels
from services.matte.networks.families import Family

Floats = NDArray[np.float32]

_LEAST_CONTRAST = 1e-4
"""Stretching an answer that is the same everywhere would make noise a subject."""


def to_input(rgb: Pixels, family: Family, side_px: int) -> Floats:
    """(1, 3, side_px, side_px) of a picture (height, width, 3) of any size."""
    small = resize(rgb, side_px, side_px).astype(np.float32)
    divisor = 255.0 if family.divisor == "255" else max(float(small.max()), 1e-6)
    mean = np.asarray(family.mean, np.float32)
    deviation = np.asarray(family.deviation, np.float32)
    normal = (small / np.float32(divisor) - mean) / deviation
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[np.newaxis])


def to_matte(answer: NDArray[np.floating], family: Family, width_px: int, height_px: int) -> Pixels:
    """(height_px, width_px), uint8, of an answer whose last two axes are the picture's."""
    plane = np.asarray(answer, np.float32).reshape(answer.shape[-2:])
    if not np.isfinite(plane).all():
        raise Fault(
            Reason.ENGINE_CRASHED,
            "The network answered with values that are no numbers; its file may be damaged.",
        )
    share = _sigmoid(plane) if family.answer == "logits" else _stretched(plane)
    return resize(np.round(share * 255.0).astype(np.uint8), width_px, height_px)


def _sigmoid(plane: Floats) -> Floats:
    return np.float32(1.0) / (np.float32(1.0) + np.exp(-np.clip(plane, -60.0, 60.0)))


def _stretched(plane: Floats) -> Floats:
    least, most = float(plane.min()), float(plane.max())
    if most - least < _LEAST_CONTRAST:
        return np.clip(plane, 0.0, 1.0)
    return (plane - least) / np.float32(most - least)
