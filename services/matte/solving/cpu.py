"""The solver for hosts without a card."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from chassis.errors import Fault, Reason

_EPSILON = 1e-5


class Solved(NamedTuple):
    """Both colours of every pixel, (H, W, 3)."""

    foreground: NDArray[np.uint8]
    background: NDArray[np.uint8]


@njit(nogil=True, fastmath=True)  # type: ignore[untyped-decorator]
def _relax(image: Any, alpha: Any, f: Any, b: Any, times: int) -> None:
    h, w = alpha.shape
    for _ in range(times):
        for y in range(h):
            for x in range(w):
                a = alpha[y, x]
                c = np.float32(1.0) - a
                s = np.float32(0.0)
                m = np.zeros(6, np.float32)
                for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                    u = max(0, min(w - 1, x + dx))
                    v = max(0, min(h - 1, y + dy))
                    d = np.float32(_EPSILON) + abs(a - alpha[v, u])
                    s += d
                    for k in range(3):
                        m[k] += d * f[v, u, k]
                        m[k + 3] += d * b[v, u, k]
                g = np.float32(1.0) / (s + a * a + c * c)
                for k in range(3):
                    mf = m[k] / s
                    mb = m[k + 3] / s
                    r = (image[y, x, k] - a * mf - c * mb) * g
                    f[y, x, k] = max(np.float32(0.0), min(np.float32(1.0), mf + a * r))
                    b[y, x, k] = max(np.float32(0.0), min(np.float32(1.0), mb + c * r))


def _nearest(plane: Any, height: int, width: int) -> Any:
    rows = np.arange(height) * plane.shape[0] // height
    columns = np.arange(width) * plane.shape[1] // width
    return np.ascontiguousarray(plane[rows][:, columns])


def estimate_f32(rgb: NDArray[Any], alpha: NDArray[Any]) -> tuple[Any, Any]:
    """Foreground and background, (H, W, 3), float32 in [0, 1]; for measuring."""
    image, matte = _unit(rgb), _unit(alpha)
    if image.ndim != 3 or image.shape[2] != 3 or matte.shape != image.shape[:2] or not matte.size:
        raise Fault(Reason.SIZE_MISMATCH, "The alpha matte must be as wide and high as the picture.")
    if not np.isfinite(matte).all():
        raise Fault(Reason.INVALID_IMAGE, "The alpha matte holds values that are not numbers.")
    height, width = matte.shape
    over, under = image[matte > 0.9], image[matte < 0.1]
    f = np.full((1, 1, 3), over.mean(0) if len(over) else 0, np.float32)
    b = np.full((1, 1, 3), under.mean(0) if len(under) else 0, np.float32)
    levels = max(1, int(np.ceil(np.log2(max(width, height)))))
    for level in range(levels + 1):
        w, h = (round(size ** (level / levels)) for size in (width, height))
        f, b = _nearest(f, h, w), _nearest(b, h, w)
        small = w <= 32 and h <= 32
        _relax(_nearest(image, h, w), _nearest(matte, h, w), f, b, 10 if small else 2)
    return f, b


def _unit(values: NDArray[Any]) -> NDArray[np.float32]:
    if values.dtype == np.uint8:
        return values.astype(np.float32) / np.float32(255)
    return values.astype(np.float32)


def estimate(rgb: NDArray[Any], alpha: NDArray[Any]) -> Solved:
    """Foreground and background of `rgb` (H, W, 3) under `alpha` (H, W); uint8 or float32 in [0, 1]."""
    f, b = (np.rint(plane * 255).astype(np.uint8) for plane in estimate_f32(rgb, alpha))
    return Solved(f, b)


def peak_bytes(width: int, height: int) -> int:
    """The most that `estimate` takes for a picture of this size."""
    return 120 * width * height


def warm_up() -> None:
    """Compiles."""
    estimate(np.zeros((2, 2, 3), np.uint8), np.zeros((2, 2), np.uint8))
