"""The solver for hosts without a card: bands of rows on a few threads of its own.

The kernels hold no GIL and share nothing that they write, so any number of requests may solve at
once; together they use as many threads as the process has cores.
"""

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.matte.solving.kernels import LANES, LEAD, STRIP_COLUMNS, solve_band
from services.matte.solving.schedule import (
    SURELY_BACKGROUND,
    SURELY_FOREGROUND,
    Level,
    Schedule,
    sample_step,
)
from services.matte.solving.values import Solved, check

Floats = NDArray[np.float32]

_BAND_ROWS = 128
"""Few enough that threads end together, many enough that a band's margins cost little."""
_WORTH_THREADS_PIXELS = 96 * 96
_SCHEDULE = Schedule()


def estimate(rgb: NDArray[Any], alpha: NDArray[Any]) -> Solved:
    """Foreground and background of `rgb` (H, W, 3) under `alpha` (H, W).

    Either may be uint8 or float32 in [0, 1]; what lies outside is taken as the nearer end. Both
    answers are uint8. What is no picture is refused (`INVALID_IMAGE`, `SIZE_MISMATCH`).
    """
    check(rgb, alpha)
    colours = tuple(np.empty(rgb.shape, np.uint8) for _ in range(2))
    _solve(rgb, alpha, _SCHEDULE, colours)
    return Solved(*colours)


def estimate_f32(
    rgb: NDArray[Any], alpha: NDArray[Any], schedule: Schedule = _SCHEDULE
) -> tuple[Floats, Floats]:
    """The same, not rounded: (H, W, 3) float32 in [0, 1]. For measuring."""
    check(rgb, alpha)
    planes = _solve(rgb, alpha, schedule, ())
    return planes[:, :3].transpose(0, 2, 1), planes[:, 3:].transpose(0, 2, 1)


def warm_up() -> None:
    """Compiles, or reads what was compiled before: seconds, or a blink."""
    estimate(np.zeros((1, 1, 3), np.uint8), np.zeros((1, 1), np.uint8))


def peak_bytes(width: int, height: int) -> int:
    """The most that `estimate` takes for itself, both answers included.

    Arrays that are not contiguous are copied; that comes on top.
    """
    answers = 6 * width * height
    levels = sum(24 * level.height * level.width for level in _levels(height, width)[-3:-1])
    deepest = max(*_SCHEDULE.finest_sweeps, _SCHEDULE.sweeps)
    lane = STRIP_COLUMNS // 2 + 2 * deepest + 3 * LEAD
    return answers + levels + _threads() * 4 * LANES * (2 * deepest + 2) * lane + (1 << 20)


def _levels(height: int, width: int) -> list[Level]:
    return list(_SCHEDULE.levels(height, width))


def _solve(
    rgb: NDArray[Any], alpha: NDArray[Any], schedule: Schedule, answers: Sequence[NDArray[np.uint8]]
) -> Floats:
    """All levels. The finest into `answers`, or returned as (H, 6, W) when there are none."""
    height, width = alpha.shape
    given = (*_by_type(rgb.reshape(height, -1)), *_by_type(alpha))
    rows = [answer.reshape(height, -1) for answer in answers] or [np.empty((0, 0), np.uint8)] * 2
    colours = _mean_colours(rgb, alpha)
    for level in schedule.levels(height, width):
        as_bytes = level.step == 1 and answers
        planes = np.empty((0 if as_bytes else level.height, 6, level.width), np.float32)
        _sweep(level, schedule, (*given, _plain(colours), planes, *rows))
        colours = planes
    return colours


def _sweep(level: Level, schedule: Schedule, arrays: Sequence[NDArray[Any]]) -> None:
    """One level, in bands on several threads when it is large."""
    floats = (np.float32(schedule.relaxation), np.float32(schedule.epsilon))

    def band(y0: int) -> None:
        y1 = min(level.height, y0 + rows)
        size = (level.step, level.height, level.width)
        solve_band(*arrays, *size, y0, y1, level.sweeps, *floats)

    if level.height * level.width < _WORTH_THREADS_PIXELS:
        rows = level.height
        band(0)
        return
    rows = min(_BAND_ROWS, -(-level.height // _threads()))
    for done in [_pool().submit(band, y0) for y0 in range(0, level.height, rows)]:
        done.result()


def _mean_colours(rgb: NDArray[Any], alpha: NDArray[Any]) -> Floats:
    """What is surely foreground and surely background, (1, 6, 1); black when there is none."""
    step = sample_step(*alpha.shape)
    colours = rgb[::step, ::step].astype(np.float32) * _unit(rgb)
    matte = alpha[::step, ::step].astype(np.float32) * _unit(alpha)
    means = np.zeros((1, 6, 1), np.float32)
    for first, sure in ((0, matte > SURELY_FOREGROUND), (3, matte < SURELY_BACKGROUND)):
        total = sure.ravel().astype(np.float32) @ colours.reshape(-1, 3)
        means[0, first : first + 3, 0] = total / max(1, np.count_nonzero(sure))
    return means


def _unit(values: NDArray[Any]) -> np.float32:
    return np.float32(1 / 255 if values.dtype == np.uint8 else 1)


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Contiguous and read-only: numba compiles anew for whatever differs in that."""
    view = np.ascontiguousarray(values).view()
    view.flags.writeable = False
    return view


def _by_type(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """As bytes and as floats, one of them empty."""
    none = np.empty((0, 0), np.float32 if values.dtype == np.uint8 else np.uint8)
    plain, none = _plain(values), _plain(none)
    return (plain, none) if values.dtype == np.uint8 else (none, plain)


def _threads() -> int:
    return len(os.sched_getaffinity(0))


@cache
def _pool() -> Executor:
    return ThreadPoolExecutor(_threads(), thread_name_prefix="solver")
