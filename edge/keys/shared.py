"""One count of what keys do, for all workers of an edge: kept by their parent, asked over links.

Every request that enters has a number, so that one whose worker has stopped waiting for the answer
can be given back without knowing what the answer was.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from chassis.errors import Fault
from edge.keys.core import Bounds, Entered, Limits, Refused
from edge.workers.link import Bound, Link, Method


class _Ask(msgspec.Struct, array_like=True):
    number: int
    name: str
    requests_per_minute: int | None
    concurrent: int | None


@dataclass(frozen=True, slots=True)
class _Said:
    entered: Entered | None = None
    refused: Refused | None = None


_ENTER: Method[_Ask, _Said] = Method("keys.enter", _Ask, _Said)
_LEAVE: Method[list[int], None] = Method("keys.leave", list[int], type(None))


class LimitsRoom:
    """The parent's side."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: steady seconds."""
        self._limits, self._clock = Limits(), clock
        self._inside: defaultdict[int, dict[int, str]] = defaultdict(dict)
        """By worker and number: the key."""

    def methods(self, slot: int) -> Sequence[Bound]:
        """What the worker `slot` may call."""
        return (
            Bound(_ENTER, lambda ask: self._enter(slot, ask)),
            Bound(_LEAVE, lambda numbers: self._leave(slot, numbers)),
        )

    def gone(self, slot: int) -> None:
        """The worker has ended, and all that it served with it."""
        for name in self._inside.pop(slot, {}).values():
            self._limits.leave(name)

    def _enter(self, slot: int, ask: _Ask) -> _Said:
        bounds = Bounds(ask.requests_per_minute, ask.concurrent)
        said = self._limits.enter(ask.name, bounds, self._clock())
        if isinstance(said, Refused):
            return _Said(refused=said)
        self._inside[slot][ask.number] = ask.name
        return _Said(entered=said)

    def _leave(self, slot: int, numbers: list[int]) -> None:
        for number in numbers:
            name = self._inside[slot].pop(number, None)
            if name is not None:  # else it was refused, and nobody waited to hear it
                self._limits.leave(name)


class SharedCounting:
    """A worker's side: `edge.keys.counting.Counting`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = count()
        self._inside: dict[str, list[int]] = {}
        """By key, the numbers of its requests: any of them leaves like any other."""
        self._untold: list[int] = []
        """Those that have left while the parent was far behind; no more than ever had entered."""

    async def enter(self, name: str, bounds: Bounds) -> Entered | Refused:
        """As Counting has it. Raises Fault when the parent does not answer."""
        self._tell_left()
        number = next(self._numbers)
        ask = _Ask(number, name, bounds.requests_per_minute, bounds.concurrent)
        try:
            said = await self._link.call(_ENTER, ask)
        except (Fault, asyncio.CancelledError):
            self._left(number)
            raise
        if said.refused is not None:
            return said.refused
        assert said.entered is not None  # noqa: S101 - it is one or the other
        self._inside.setdefault(name, []).append(number)
        return said.entered

    def leave(self, name: str) -> None:
        """As Counting has it."""
        numbers = self._inside[name]
        self._left(numbers.pop())
        if not numbers:
            del self._inside[name]

    def _left(self, number: int) -> None:
        self._untold.append(number)
        self._tell_left()

    def _tell_left(self) -> None:
        # A place that is not given back is lost to its key for good, so it is told until it is.
        if self._untold and self._link.tell(_LEAVE, self._untold):
            self._untold = []
