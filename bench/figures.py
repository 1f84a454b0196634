"""Paired figures: what one way of asking costs more than another. Pure: numbers in, numbers out.

The ways take turns within each round, so each pair was measured within the same second or so and
what disturbs the machine hits both. The median of the pairs' differences is therefore far steadier
than the difference of two medians.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Shot(NamedTuple):
    """One answer, as whoever asked for it saw it."""

    first_ms: float
    """From sending the question to the first text."""
    tokens_per_s: float
    """All tokens of the answer, over the time from sending to the last of them."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of many figures, and the quarter marks around it."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of at least two values."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high)


@dataclass(frozen=True, slots=True)
class Figures:
    """One way of asking, on its own and paired with the bare loop."""

    first_ms: Spread
    tokens_per_s: Spread
    added_ms: Spread
    """First token: how much later than the bare loop's of the same round."""
    lost_percent: Spread
    """Throughput: how much less than the bare loop's of the same round."""
    first_times_bare: float
    speed_times_bare: float
    """The medians of the paired ratios; unlike the rest, they can be compared across machines."""


def paired(bare: Sequence[Shot], way: Sequence[Shot]) -> Figures:
    """`way` against `bare`, round by round."""
    pairs = list(zip(bare, way, strict=True))
    return Figures(
        first_ms=spread([shot.first_ms for shot in way]),
        tokens_per_s=spread([shot.tokens_per_s for shot in way]),
        added_ms=spread([mine.first_ms - its.first_ms for its, mine in pairs]),
        lost_percent=spread(
            [100 * (1 - mine.tokens_per_s / its.tokens_per_s) for its, mine in pairs]
        ),
        first_times_bare=statistics.median(mine.first_ms / its.first_ms for its, mine in pairs),
        speed_times_bare=statistics.median(
            mine.tokens_per_s / its.tokens_per_s for its, mine in pairs
        ),
    )


def all_paired(shots: Mapping[str, Sequence[Shot]], bare: str) -> dict[str, Figures]:
    """Every way against the one named `bare`."""
    return {name: paired(shots[bare], mine) for name, mine in shots.items()}
