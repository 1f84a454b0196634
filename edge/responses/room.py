"""Responses over several workers, in their parent: one store, and a way to what others answer.

The last digits of a response's id say which worker answers it, so that nothing has to be written
down while it does: whoever looks for it asks there. A response is in the store before its worker
says that it no longer answers it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from chassis.errors import Fault
from edge.responses.calls import (
    CANCEL,
    CANCEL_HERE,
    FORGET,
    KEEP,
    LOOK,
    LOOK_HERE,
    STOP_S,
    Keep,
    Which,
)
from edge.responses.ids import slot_of
from edge.responses.shelf import Seen
from edge.responses.store import ResponseStore
from edge.workers.link import Bound, Link


@dataclass(frozen=True, slots=True)
class ResponsesRoom:
    """The parent's part. `links`: to the workers that there are, by slot."""

    store: ResponseStore
    links: Mapping[int, Link]

    def methods(self, slot: int) -> Sequence[Bound]:
        """What the worker `slot` may call."""

        def keep(it: Keep) -> None:
            self.store.keep(it.name, it.response)

        async def look(which: Which) -> Seen | None:
            return await self._look(which, slot)

        async def cancel(which: Which) -> bytes | None:
            if (link := self._answering(which, slot)) is None:
                return None
            return await link.call(CANCEL_HERE, which, within_s=1.5 * STOP_S)

        def forget(which: Which) -> bool:
            return self.store.forget(which.name, which.owner)

        return (Bound(KEEP, keep), Bound(LOOK, look), Bound(CANCEL, cancel), Bound(FORGET, forget))

    def gone(self, slot: int) -> None:
        """A worker's answers ended with it, and nothing of them was written down."""

    async def _look(self, which: Which, asking: int) -> Seen | None:
        if (found := self.store.find(which.name, which.owner)) is not None:
            return Seen(found, over=True)
        if (link := self._answering(which, asking)) is None:
            return None
        running = None
        with suppress(Fault):  # it has died: what it answered is no more
            running = await link.call(LOOK_HERE, which)
        if running is not None:
            return Seen(running, over=False)
        found = self.store.find(which.name, which.owner)
        return None if found is None else Seen(found, over=True)

    def _answering(self, which: Which, asking: int) -> Link | None:
        slot = slot_of(which.name)
        return None if slot in (asking, None) else self.links.get(slot)
