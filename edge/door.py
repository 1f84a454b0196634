"""How many requests for a model the edge has open at once, over all its routes."""

from collections.abc import Iterator
from contextlib import contextmanager

from chassis.errors import Fault, Reason


class Door:
    """Bounds how many requests for a model are in progress."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.inside = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Be one of them until the block ends. Raises Fault when there are too many."""
        if self.inside >= self._limit:
            message = f"{self._limit} requests are open already; try again shortly."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
