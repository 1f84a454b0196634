"""Responses over several workers, in a worker: what it asks its parent, and what it is asked."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

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
from edge.responses.in_flight import InFlight
from edge.responses.shelf import Seen
from edge.responses.store import Kept, kept
from edge.workers.link import Bound, Link

_OVER_S = 1.0
"""From the last word of an answer to the moment when it is kept."""


@dataclass(frozen=True, slots=True)
class SharedShelf:
    """`Shelf` of a worker."""

    link: Link
    most_bytes: int
    """Of all that is kept: what is larger would be turned away."""

    def keep(self, name: str, response: Kept) -> None:
        """Tell the parent."""
        if response.size_bytes <= self.most_bytes:
            self.link.tell(KEEP, Keep(name, response))

    async def look(self, name: str, owner: str) -> Seen | None:
        """Ask the parent."""
        return await self.link.call(LOOK, Which(name, owner))

    async def cancel(self, name: str, owner: str) -> bytes | None:
        """Have the parent ask whoever answers it."""
        return await self.link.call(CANCEL, Which(name, owner), within_s=2 * STOP_S)

    async def forget(self, name: str, owner: str) -> bool:
        """Ask the parent."""
        return await self.link.call(FORGET, Which(name, owner))


def answered_here(runs: InFlight) -> Sequence[Bound]:
    """A worker's part: what others may ask it about its own."""

    async def look(which: Which) -> Kept | None:
        run = runs.find(which.name, which.owner)
        if run is None:
            return None
        if run.in_progress:
            return kept(run.owner, run.writer.body(), run.given)
        with suppress(TimeoutError):  # a client that reads its end slowly
            async with asyncio.timeout(_OVER_S):
                await run.over.wait()
        return None

    async def cancel(which: Which) -> bytes | None:
        run = runs.find(which.name, which.owner)
        return await run.cancel() if run is not None and run.in_progress else None

    return (Bound(LOOK_HERE, look), Bound(CANCEL_HERE, cancel))
