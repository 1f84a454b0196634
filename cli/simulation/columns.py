"""A record cut into as many columns as a picture has pixels: what is narrower is merged. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from cli.simulation.record import Phase
from services.scheduler.core.values import Tier

_WORTH_SHOWING = 0.1
"""A load or a drain shows when it takes this share of a column."""


@dataclass(frozen=True, slots=True)
class Scale:
    """`count` columns over `span_ms`."""

    count: int
    span_ms: int

    def pieces(self, begin_ms: int, end_ms: int) -> Iterator[tuple[int, float]]:
        """The columns that a span touches, each with the share of it that is covered."""
        begin, end = self._at(begin_ms), self._at(end_ms)
        for column in range(int(begin), min(self.count, int(end) + 1)):
            yield column, min(end, column + 1) - max(begin, column)

    def _at(self, when_ms: int) -> float:
        return when_ms * self.count / self.span_ms


@dataclass(frozen=True, slots=True)
class Run:
    """Columns side by side that look the same."""

    first: int
    length: int
    phase: Phase


def phase_runs(scale: Scale, states: Sequence[tuple[int, Phase]]) -> list[Run]:
    """What a model was, from its changes; columns in which it was away are left out."""
    shares = [dict.fromkeys(Phase, 0.0) for _ in range(scale.count)]
    for (begin_ms, phase), (end_ms, _) in pairwise([*states, (scale.span_ms, Phase.AWAY)]):
        for column, share in scale.pieces(begin_ms, end_ms):
            shares[column][phase] += share
    runs, first = [], 0
    for phase, same in groupby(map(_look, shares)):
        length = len(list(same))
        if phase is not Phase.AWAY:
            runs.append(Run(first, length, phase))
        first += length
    return runs


def _look(shares: dict[Phase, float]) -> Phase:
    for brief in (Phase.LOADING, Phase.DRAINING):
        if shares[brief] >= _WORTH_SHOWING:
            return brief
    present = shares[Phase.BUSY] + shares[Phase.IDLE]
    if present <= shares[Phase.AWAY]:
        return Phase.AWAY
    return Phase.BUSY if 4 * shares[Phase.BUSY] >= present else Phase.IDLE


def most_waiting(scale: Scale, changes: Sequence[tuple[int, Tier, int]], tier: Tier) -> list[int]:
    """The most that waited of a tier, in each column."""
    most, last = [0] * scale.count, (0, 0)
    for when_ms, of, count in [*changes, (scale.span_ms, tier, 0)]:
        if of is tier:
            for column, _ in scale.pieces(last[0], when_ms):
                most[column] = max(most[column], last[1])
            last = (when_ms, count)
    return most


def fullest(
    scale: Scale, states: Sequence[tuple[int, int, int, int]]
) -> list[tuple[int, int, int]]:
    """Resident, transient and foreign memory when they were most together, in each column."""
    most = [(0, 0, 0)] * scale.count
    for (begin_ms, *used), (end_ms, *_) in pairwise([*states, (scale.span_ms, 0, 0, 0)]):
        now = (used[0], used[1], used[2])
        for column, _ in scale.pieces(begin_ms, end_ms):
            if sum(now) > sum(most[column]):
                most[column] = now
    return most
