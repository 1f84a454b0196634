"""The two that are compared, each called as it likes best: with ready arrays of the types it takes.

pymatting wants floats and gives floats; what it would cost to make them of bytes and back is not
counted against it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymatting import estimate_foreground_ml

from bench.matte.figures import Shot, errors
from bench.matte.pictures import Composite, composite
from services.matte.solving import estimate, warm_up

Solver = Callable[[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]


class Rival(NamedTuple):
    """A solver and the type of its input."""

    name: str
    solve: Solver
    takes_bytes: bool


def _theirs(image: NDArray[Any], alpha: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    foreground, background = estimate_foreground_ml(image, alpha, return_background=True)
    return foreground, background


OURS = Rival("cohabit", estimate, takes_bytes=True)
THEIRS = Rival("pymatting", _theirs, takes_bytes=False)


def compile_both() -> None:
    """Neither is timed while it compiles."""
    warm_up()
    for rival in (OURS, THEIRS):
        solved(rival, composite(0, 64))


def solved(rival: Rival, picture: Composite) -> tuple[Shot, NDArray[np.float32]]:
    """One composite, timed and measured; with its foreground in [0, 1]."""
    given: list[NDArray[Any]] = [picture.image, picture.alpha]
    if not rival.takes_bytes:
        given = [_as_floats(plane) for plane in given]
    wall, cpu = time.perf_counter(), time.process_time()
    answers = rival.solve(*given)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    foreground, background = (_as_floats(answer) for answer in answers)
    shot = Shot(picture.kind, errors(foreground, background, picture), wall, max(cpu, 1e-6))
    return shot, foreground


def in_turn(number: int) -> Sequence[Rival]:
    """Each is first as often as the other."""
    return (OURS, THEIRS) if number % 2 else (THEIRS, OURS)


def _as_floats(values: NDArray[Any]) -> NDArray[np.float32]:
    floats = values.astype(np.float32)
    return floats / np.float32(255) if values.dtype == np.uint8 else floats
