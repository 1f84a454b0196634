"""Virtual time: what happens next, in order of time and, at one time, of being scheduled."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NEVER_MS = 1 << 62


@dataclass(slots=True)
class Clock:
    """A heap of what is to come."""

    now_ms: int = 0
    _heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    _count: int = 0

    @property
    def next_ms(self) -> int:
        """When the next thing happens."""
        return self._heap[0][0] if self._heap else NEVER_MS

    def at(self, when_ms: int, what: Callable[..., None], *args: Any) -> None:
        """Let `what` happen then; never before now."""
        self._count += 1
        heapq.heappush(self._heap, (max(when_ms, self.now_ms), self._count, what, args))

    def after(self, delay_ms: int, what: Callable[..., None], *args: Any) -> None:
        """Let `what` happen so much later."""
        self.at(self.now_ms + delay_ms, what, *args)

    def step(self) -> None:
        """Go to the next thing and do it."""
        self.now_ms, _, what, args = heapq.heappop(self._heap)
        what(*args)
