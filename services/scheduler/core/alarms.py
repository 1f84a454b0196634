"""Deadlines of many things, the nearest first, in memory bounded by what is alive. Pure.

Nothing is ever cancelled: what rings for something that is over is passed over, and swept when such
entries outnumber the others.
"""

import heapq
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any

_SLACK = 1_000


class Alarm(IntEnum):
    """What a deadline is about, and what it is set for."""

    WAITED = 1
    """A waiter has waited its lane's longest."""
    PROMOTE = 2
    """A waiter goes up by a tier."""
    UNUSED = 3
    """A permit should have been used by now."""
    RAN = 4
    """A permit has run its lane's longest."""
    HOLD = 5
    """A hold expires (lane, holder, when)."""
    LOOK = 6
    """Something about a model has to be decided anew (its key, when)."""


class Alarms:
    """A heap of (when, order of setting, subject) for each sort of alarm: those of one sort are set
    in about the order in which they ring, which costs a heap nothing."""

    def __init__(self, is_stale: Callable[[Alarm, Any], bool]) -> None:
        self._heaps: list[list[tuple[int, int, Any]]] = [[] for _ in range(max(Alarm) + 1)]
        self._set = 0
        self._is_stale = is_stale
        self._limits = [_SLACK] * len(self._heaps)
        self.next_ms: int | None = None
        """When `due` has something next; may be early, never late."""

    def set(self, when_ms: int, what: Alarm, subject: Any) -> None:
        """Ring `what` for `subject` at `when_ms`."""
        self._set += 1
        heap = self._heaps[what]
        heapq.heappush(heap, (when_ms, self._set, subject))
        if self.next_ms is None or when_ms < self.next_ms:
            self.next_ms = when_ms
        if len(heap) > self._limits[what]:
            self._sweep(what)

    def due(self, now_ms: int) -> Iterator[tuple[Alarm, Any]]:
        """Take out what rings by `now_ms`, oldest first; what one of them ends rings no more."""
        while (first := self._first()) is not None and first[0] <= now_ms:
            what = Alarm(first[2])
            _, _, subject = heapq.heappop(self._heaps[what])
            if not self._is_stale(what, subject):
                yield what, subject
        self.next_ms = first[0] if first is not None else None

    def __len__(self) -> int:
        return sum(map(len, self._heaps))

    def _first(self) -> tuple[int, int, int] | None:
        """Of all that are set, when the first rings, its order of setting, and its sort."""
        fronts = [(heap[0][0], heap[0][1], i) for i, heap in enumerate(self._heaps) if heap]
        return min(fronts) if fronts else None

    def _sweep(self, what: Alarm) -> None:
        heap = [entry for entry in self._heaps[what] if not self._is_stale(what, entry[2])]
        heapq.heapify(heap)
        self._heaps[what] = heap
        self._limits[what] = 2 * len(heap) + _SLACK
