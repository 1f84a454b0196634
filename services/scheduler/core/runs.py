"""How long requests run, by lane and model: what a run is expected to cost. Pure."""

from collections import OrderedDict, deque

_REMEMBERED = 64
"""Runs of one lane and model."""
_MOST = 1_024
"""Pairs of lane and model; those used least lately are forgotten."""


class _Sample:
    """The last runs. Adding is done at every end of a run, asking for a quantile seldom."""

    __slots__ = ("ran_ms", "total_ms")

    def __init__(self) -> None:
        self.ran_ms: deque[int] = deque()
        self.total_ms = 0


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
        sample.ran_ms.append(ran_ms)
        sample.total_ms += ran_ms
        if len(sample.ran_ms) > _REMEMBERED:
            sample.total_ms -= sample.ran_ms.popleft()

    def mean_ms(self, lane: str, model: str) -> float:
        """The mean of the last 64; 0 when nothing is known: a guess above what was ever served
        would be held against others."""
        sample = self._samples.get((lane, model))
        return sample.total_ms / len(sample.ran_ms) if sample is not None else 0.0

    def p90_ms(self, lane: str, model: str) -> int | None:
        """Nine in ten of the last 64 were no longer than this; None when nothing is known."""
        sample = self._samples.get((lane, model))
        if sample is None:
            return None
        by_length = sorted(sample.ran_ms)
        return by_length[(9 * len(by_length) - 1) // 10]
