"""Deadlines of many things, the nearest first, in memory bounded by what is alive."""

import heapq
from dataclasses import dataclass, field
from enum import Enum, auto

_SLACK = 1_000


class Alarm(Enum):
    """What a deadline is about."""

    WAITED = auto()
    """A request has waited its lane's longest."""
    UNUSED = auto()
    """A grant should have been used by now."""
    RAN = auto()
    """A permit has run its lane's longest."""
    LEASE = auto()
    """A lease may be asked for again."""


@dataclass(slots=True)
class Alarms:
    """A heap of (when, what, name). Cancelled ones are swept when they outnumber the others."""

    _heap: list[tuple[int, int, Alarm, str]] = field(default_factory=list)
    _current: dict[tuple[Alarm, str], int] = field(default_factory=dict)

    def set(self, when_ms: int, what: Alarm, name: str) -> None:
        """Ring `what` for `name` at `when_ms`, instead of any time set before."""
        self._current[what, name] = when_ms
        heapq.heappush(self._heap, (when_ms, what.value, what, name))
        if len(self._heap) > 2 * len(self._current) + _SLACK:
            self._heap = [e for e in self._heap if self._current.get((e[2], e[3])) == e[0]]
            heapq.heapify(self._heap)

    def cancel(self, what: Alarm, name: str) -> None:
        """Forget an alarm. Does nothing if it is not set."""
        self._current.pop((what, name), None)

    def due(self, now_ms: int) -> list[tuple[Alarm, str]]:
        """Take out what rings by `now_ms`, oldest first."""
        rung = []
        while self._heap and self._heap[0][0] <= now_ms:
            when, _, what, name = heapq.heappop(self._heap)
            if self._current.get((what, name)) == when:
                del self._current[what, name]
                rung.append((what, name))
        return rung

    @property
    def next_ms(self) -> int | None:
        """When `due` has something next; may be early, never late."""
        return self._heap[0][0] if self._heap else None
