"""Which worker takes the next connection: the one that has the fewest. Pure.

A connection may live for hours, and so may the answers on it: who has many is busier than who has
few. A kernel that hands connections to whoever wakes up first does not know that: of 64 that came
at once to four processes on one socket, it was seen to give 63 to one of them.
"""

from collections.abc import Collection


class Loads:
    """How many connections each worker has, by slot. A worker that is not in takes none."""

    def __init__(self) -> None:
        self._handed: dict[int, int] = {}
        self._closed: dict[int, int] = {}
        self._last = -1

    @property
    def slots(self) -> Collection[int]:
        """Who takes connections."""
        return self._handed.keys()

    def join(self, slot: int) -> None:
        """A worker is ready, with no connection yet."""
        self._handed[slot] = self._closed[slot] = 0

    def leave(self, slot: int) -> None:
        """It takes no more."""
        self._handed.pop(slot, None)
        self._closed.pop(slot, None)

    def closed(self, slot: int, in_all: int) -> None:
        """A worker tells how many of its connections have ended, since it is there."""
        if slot in self._closed:
            self._closed[slot] = in_all

    def open_in(self, slot: int) -> int:
        """How many it has."""
        return self._handed[slot] - self._closed[slot]

    def order(self) -> list[int]:
        """Who to offer the next connection to, one after the other; among equals in turn."""
        turn = self._last + 1
        return sorted(self._handed, key=lambda slot: (self.open_in(slot), slot < turn, slot))

    def handed(self, slot: int) -> None:
        """It has one more."""
        self._handed[slot] += 1
        self._last = slot
