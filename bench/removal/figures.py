"""Throughput by way and the ratios that are judged. Pure: times in, figures out.

All ways of a comparison take turns within a round, so a ratio is of times taken within the same
seconds; the median of the rounds' ratios is judged.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Shot(NamedTuple):
    """All pictures of a round, by one way."""

    pictures: int
    wall_s: float
    cpu_s: float | None
    """Of the way's processes; None: they are not this bench's to look into."""
    answer_bytes: int

    @property
    def per_s(self) -> float:
        """Pictures a second."""
        return self.pictures / self.wall_s

    @property
    def cpu_ms(self) -> float | None:
        """Of all cores, for a picture."""
        return None if self.cpu_s is None else 1000 * self.cpu_s / self.pictures


@dataclass(frozen=True, slots=True)
class Compared:
    """One size of pictures by several ways, round by round: those of ours, and the rival's."""

    title: str
    least_ratio: float
    ours: Mapping[str, Sequence[Shot]]
    theirs: Mapping[str, Sequence[Shot]]

    @property
    def best_rival(self) -> str:
        """Of the rival's ways the one with most pictures a second: it is compared with."""
        return max(self.theirs, key=lambda name: per_s(self.theirs[name]))

    def ratios(self, name: str) -> list[float]:
        """Our way's pictures a second over the best rival's, round by round."""
        pairs = zip(self.ours[name], self.theirs[self.best_rival], strict=True)
        return [mine.per_s / its.per_s for mine, its in pairs]

    def ratio(self, name: str) -> float:
        """The median of the rounds' ratios."""
        return statistics.median(self.ratios(name))

    def passes(self, name: str) -> bool:
        """Whether our way keeps the limit."""
        return self.ratio(name) >= self.least_ratio

    @property
    def all_pass(self) -> bool:
        """Whether all of our ways do."""
        return all(self.passes(name) for name in self.ours)


def per_s(shots: Sequence[Shot]) -> float:
    """The median of the rounds."""
    return statistics.median(shot.per_s for shot in shots)


def cpu_ms(shots: Sequence[Shot]) -> float | None:
    """The median of the rounds, where it is known."""
    known = [shot.cpu_ms for shot in shots if shot.cpu_ms is not None]
    return statistics.median(known) if known else None
