"""What the two solvers are compared by. Pure: arrays and times in, figures out."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.matte.pictures import KINDS, Composite

MOST_ERROR = 1.00
"""Our error over theirs."""
LEAST_SPEED = 1.5
"""Their time over ours."""
FEWEST = 30
"""Composites of a size, for its figures to count."""


class Errors(NamedTuple):
    """How far an estimate is from the truth, colours in [0, 1]."""

    mean: float
    """|F - truth|, weighted by alpha: what is seen on any background. The one that is judged."""
    mse: float
    """(F - truth)^2, weighted by alpha."""
    sad: float
    """|F - truth| summed over channels and pixels with 0 < alpha < 1, in thousands."""
    background: float
    """|B - truth|, weighted by 1 - alpha."""


class Shot(NamedTuple):
    """One composite solved by one solver."""

    kind: str
    errors: Errors
    wall_s: float
    cpu_s: float


def errors(
    foreground: NDArray[np.float32], background: NDArray[np.float32], truth: Composite
) -> Errors:
    """Of one estimate, (H, W, 3) both."""
    alpha = truth.alpha.astype(np.float32) / np.float32(255)
    off = foreground - truth.foreground.astype(np.float32) / np.float32(255)
    behind = np.abs(background - truth.background.astype(np.float32) / np.float32(255))
    between = (alpha > 0) & (alpha < 1)
    return Errors(
        _weighted(np.abs(off).mean(axis=2), alpha),
        _weighted((off**2).mean(axis=2), alpha),
        float(np.abs(off)[between].sum()) / 1000,
        _weighted(behind.mean(axis=2), 1 - alpha),
    )


def _weighted(values: NDArray[np.float32], weights: NDArray[np.float32]) -> float:
    return float((values * weights).sum(dtype=np.float64) / weights.sum(dtype=np.float64))


@dataclass(frozen=True, slots=True)
class Compared:
    """All composites of one size."""

    size: int
    ours: Sequence[Shot]
    theirs: Sequence[Shot]
    ours_coarse: Sequence[Shot]
    theirs_coarse: Sequence[Shot]
    """The same with mattes that are not exact. Told, not judged."""

    @property
    def error_ratios(self) -> Errors:
        """Mean of ours over mean of theirs, for each kind of error."""
        return _ratios(self.ours, self.theirs)

    @property
    def coarse_error_ratio(self) -> float:
        """The judged one, with mattes that are not exact."""
        return _ratios(self.ours_coarse, self.theirs_coarse).mean

    @property
    def error_ratio_by_kind(self) -> dict[str, float]:
        """The judged one, of each kind of matte."""
        return {
            kind: _ratios(
                [shot for shot in self.ours if shot.kind == kind],
                [shot for shot in self.theirs if shot.kind == kind],
            ).mean
            for kind in KINDS
        }

    @property
    def worst_error_ratio(self) -> float:
        """Of a single composite."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return max(mine.errors.mean / its.errors.mean for mine, its in pairs)

    @property
    def speed_ratio(self) -> float:
        """How many times our speed is theirs: the median of the pairs' ratios."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(its.wall_s / mine.wall_s for mine, its in pairs)

    @property
    def cpu_ratio(self) -> float:
        """The same for the time of all cores together, which theirs does not use alike."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return statistics.median(its.cpu_s / mine.cpu_s for mine, its in pairs)

    @property
    def passes(self) -> bool:
        """Both limits are kept."""
        exact = self.error_ratios.mean <= MOST_ERROR
        return exact and self.speed_ratio >= LEAST_SPEED and len(self.ours) >= FEWEST


def median_ms(shots: Iterable[Shot]) -> float:
    """The middle wall time."""
    return 1000 * statistics.median(shot.wall_s for shot in shots)


def _ratios(ours: Sequence[Shot], theirs: Sequence[Shot]) -> Errors:
    mine, its = (_mean(shot.errors for shot in shots) for shots in (ours, theirs))
    return Errors(*(a / b for a, b in zip(mine, its, strict=True)))


def _mean(all_errors: Iterable[Errors]) -> Errors:
    return Errors(*(statistics.fmean(values) for values in zip(*all_errors, strict=True)))
