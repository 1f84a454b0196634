"""Who counts what keys do: this process alone, or one place for several (`shared`)."""

import time
from collections.abc import Callable
from typing import Protocol

from chassis.errors import Fault, Reason
from edge.keys.core import Bounds, Entered, Limits, Refused

Headers = dict[bytes, bytes]


class Counting(Protocol):
    """Counts requests by key."""

    async def enter(self, name: str, bounds: Bounds) -> Entered | Refused:
        """A request of this key begins. Raises Fault when nobody counts at the moment."""

    def leave(self, name: str) -> None:
        """One that entered is over. At once, so that it is told however the request ends."""


class OwnCounting:
    """For the one process that serves."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: steady seconds."""
        self._limits, self._clock = Limits(), clock

    async def enter(self, name: str, bounds: Bounds) -> Entered | Refused:
        """As Counting has it; never raises."""
        return self._limits.enter(name, bounds, self._clock())

    def leave(self, name: str) -> None:
        """As Counting has it."""
        self._limits.leave(name)


def too_much(bounds: Bounds, refused: Refused) -> Fault:
    """What the caller is told."""
    if refused.of == "concurrent":
        message = (
            f"This API key may have {bounds.concurrent} requests in progress, and has; wait for "
            "one of them to end."
        )
    else:
        message = (
            f"This API key may make {bounds.requests_per_minute} requests a minute; the next one "
            f"may come in {refused.retry_after_s:.3f} s."
        )
    return Fault(Reason.RATE_LIMIT_EXCEEDED, message, retry_after_s=refused.retry_after_s)


def standing(bounds: Bounds, now: Entered | Refused) -> Headers:
    """Where a key stands, in the headers in which OpenAI tells it."""
    if bounds.requests_per_minute is None:
        return {}
    left = now.remaining if isinstance(now, Entered) else 0
    return {
        b"x-ratelimit-limit-requests": b"%d" % bounds.requests_per_minute,
        b"x-ratelimit-remaining-requests": b"%d" % left,
        b"x-ratelimit-reset-requests": f"{now.reset_s:.3f}s".encode(),
    }
