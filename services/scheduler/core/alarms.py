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
    """A heap of (when, order of setting, what, subject)."""

    def __init__(self, is_stale: Callable[[Alarm, Any], bool]) -> None:
        self._heap: list[tuple[int, int, Alarm, Any]] = []
        self._set = 0
        self._is_stale = is_stale
        self._limit = _SLACK

    def set(self, when_ms: int, what: Alarm, subject: Any) -> None:
        """Ring `what` for `subject` at `when_ms`."""
        self._set += 1
        heapq.heappush(self._heap, (when_ms, self._set, what, subject))
        if len(self._heap) > self._limit:
            self._sweep()

    def due(self, now_ms: int) -> Iterator[tuple[Alarm, Any]]:
        """Take out what rings by `now_ms`, oldest first; what one of them ends rings no more."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, what, subject = heapq.heappop(self._heap)
            if not self._is_stale(what, subject):
                yield what, subject

    @property
    def next_ms(self) -> int | None:
        """When `due` has something next; may be early, never late."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._heap)

    def _sweep(self) -> None:
        self._heap = [e for e in self._heap if not self._is_stale(e[2], e[3])]
        heapq.heapify(self._heap)
        self._limit = 2 * len(self._heap) + _SLACK
