"""What goes into the solver and what comes out, and which of it is refused."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chassis.errors import Fault, Reason


class Solved(NamedTuple):
    """Both colours of every pixel, (H, W, 3)."""

    foreground: NDArray[np.uint8]
    background: NDArray[np.uint8]


def check(rgb: NDArray[Any], alpha: NDArray[Any]) -> None:
    """Refuses what cannot be solved: shapes that do not fit, other types, no numbers."""
    if rgb.ndim != 3 or rgb.shape[2] != 3 or not rgb.size:
        raise _refused(Reason.INVALID_IMAGE, f"A picture is (H, W, 3), not {rgb.shape}.", "image")
    if alpha.shape != rgb.shape[:2]:
        text = (
            f"The matte is {alpha.shape}, the picture {rgb.shape[:2]}: both must be the same size."
        )
        raise _refused(Reason.SIZE_MISMATCH, text, "alpha")
    for values, name in ((rgb, "image"), (alpha, "alpha")):
        if values.dtype not in (np.uint8, np.float32):
            text = f"The {name} is {values.dtype}: uint8, or float32 from 0 to 1, can be solved."
            raise _refused(Reason.INVALID_IMAGE, text, name)
        # A sum is finite when all of its parts are, and makes no array of answers.
        if values.dtype == np.float32 and not np.isfinite(np.sum(values)):
            text = f"The {name} holds values that are not finite numbers."
            raise _refused(Reason.INVALID_IMAGE, text, name)


def _refused(reason: Reason, text: str, param: str) -> Fault:
    return Fault(reason, text, metadata={"param": param})
