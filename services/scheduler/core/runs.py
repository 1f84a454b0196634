"""How long requests run, by lane and model: what a run is expected to cost. Pure."""

from bisect import bisect_left, insort
from collections import OrderedDict, deque

_REMEMBERED = 64
"""Runs of one lane and model."""
_MOST = 1_024
"""Pairs of lane and model; those used least lately are forgotten."""


class _Sample:
    """The last runs, in the order they ended and in order of length."""

    __slots__ = ("by_length", "by_time", "total_ms")

    def __init__(self) -> None:
        self.by_time: deque[int] = deque()
        self.by_length: list[int] = []
        self.total_ms = 0

    def add(self, ran_ms: int) -> None:
        if len(self.by_time) == _REMEMBERED:
            oldest = self.by_time.popleft()
            del self.by_length[bisect_left(self.by_length, oldest)]
            self.total_ms -= oldest
        self.by_time.append(ran_ms)
        insort(self.by_length, ran_ms)
        self.total_ms += ran_ms


class Runs:
    """Measured run times."""

    def __init__(self) -> None:
        self._samples: OrderedDict[tuple[str, str], _Sample] = OrderedDict()

    def add(self, lane: str, model: str, ran_ms: int) -> None:
        """A request of this lane on this model has run for so long."""
        pair = (lane, model)
        sample = self._samples.get(pair)
        if sample is None:
            sample = self._samples[pair] = _Sample()
            if len(self._samples) > _MOST:
                self._samples.popitem(last=False)
        else:
            self._samples.move_to_end(pair)
        sample.add(ran_ms)

    def mean_ms(self, lane: str, model: str) -> float:
        """The mean of the last 64; 0 when nothing is known: a guess above what was ever served
        would be held against others."""
        sample = self._samples.get((lane, model))
        return sample.total_ms / len(sample.by_time) if sample is not None else 0.0

    def p90_ms(self, lane: str, model: str) -> int | None:
        """Nine in ten of the last 64 were no longer than this; None when nothing is known."""
        sample = self._samples.get((lane, model))
        if sample is None:
            return None
        return sample.by_length[(9 * len(sample.by_length) - 1) // 10]
