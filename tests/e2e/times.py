"""How long everything took: said as it happens, and as a table at the end."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Times:
    """Rows in the order in which things began."""

    rows: list[tuple[str, float, str]] = field(default_factory=list)

    def add(self, what: str, took_s: float, note: str = "") -> None:
        self.rows.append((what, took_s, note))
        sys.stderr.write(f"  {what}: {took_s:.1f} s{', ' + note if note else ''}\n")
        sys.stderr.flush()

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """What the block takes."""
        sys.stderr.write(f"  {what} …\n")
        sys.stderr.flush()
        began = time.monotonic()
        yield
        self.add(what, time.monotonic() - began)

    def table(self) -> list[str]:
        width = max((len(what) for what, _, _ in self.rows), default=0)
        return [f"{what:<{width}}  {took_s:7.1f} s  {note}" for what, took_s, note in self.rows]


TIMES = Times()
