"""Those who want to be told to shrink. Who is asked, and by how much, is the core's decision."""

from collections.abc import Iterator
from contextlib import contextmanager

from chassis.errors import Fault, Reason
from services.broker import metrics
from services.broker.core import Shrink
from services.broker.mailbox import Mailbox


class Watchers:
    """At most `most` watchers, each with at most `most_unread` leases to read of."""

    def __init__(self, most: int = 64, most_unread: int = 1024) -> None:
        self._most, self._most_unread = most, most_unread
        self._boxes: dict[Mailbox[Shrink], str] = {}  # by the holders they are for
        self._closed = False

    @contextmanager
    def watch(self, prefix: str) -> Iterator[Mailbox[Shrink]]:
        """Be told, until the end of the block, of holders that start with `prefix`.

        Faults: saturated. The mailbox ends with slow_reader when too much piles up.
        """
        if len(self._boxes) >= self._most:
            raise Fault(
                Reason.SATURATED,
                f"{self._most} streams of pressure are open already; close one of them.",
                retry_after_s=1.0,
            )
        box: Mailbox[Shrink] = Mailbox(self._most_unread)
        if self._closed:
            box.end()
        self._boxes[box] = prefix
        metrics.WATCHERS.set(len(self._boxes))
        try:
            yield box
        finally:
            del self._boxes[box]
            metrics.WATCHERS.set(len(self._boxes))

    def want(self, holder: str) -> bool:
        """Whether anybody wants to hear of this holder's leases."""
        return any(holder.startswith(prefix) for prefix in self._boxes.values())

    def tell(self, shrink: Shrink) -> None:
        """Hand out one message, waiting for nobody."""
        for box, prefix in self._boxes.items():
            if shrink.holder.startswith(prefix):
                metrics.PRESSURE.inc()
                if not box.put(shrink.lease_id, shrink):
                    box.end(self._too_slow())

    def close(self) -> None:
        """End every stream, and those to come at once."""
        self._closed = True
        for box in self._boxes:
            box.end()

    def _too_slow(self) -> Fault:
        return Fault(
            Reason.SLOW_READER,
            f"More than {self._most_unread} leases were asked to shrink and nobody read it; watch "
            "anew and read on.",
        )
