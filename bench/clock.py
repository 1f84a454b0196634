"""When an answer's first text and its last token came."""

import time
from dataclasses import dataclass, field

from bench.figures import Shot


@dataclass(slots=True)
class StopWatch:
    """Starts when it is made."""

    _began_s: float = field(default_factory=time.perf_counter)
    _first_s: float = 0.0
    _last_s: float = 0.0

    def text(self) -> None:
        """Text is here; the first is noted."""
        if not self._first_s:
            self._first_s = time.perf_counter()

    def finish(self) -> None:
        """The end is here."""
        self._last_s = time.perf_counter()

    def shot(self, tokens: int) -> Shot:
        """The figures of an answer of `tokens`. Raises RuntimeError for half an answer."""
        if not self._first_s or not self._last_s or not tokens:
            raise RuntimeError("an answer came without text, without an end or without a count")
        return Shot(1e3 * (self._first_s - self._began_s), tokens / (self._last_s - self._began_s))
