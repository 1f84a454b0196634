"""Where a response is found that is not being answered by this process.

That is the store; and where the edge has several workers, the store they share in their parent, and
what the other workers are answering.
"""

from dataclasses import dataclass
from typing import Protocol

from edge.responses.store import Kept, ResponseStore


@dataclass(frozen=True, slots=True)
class Seen:
    """A response, as it is now."""

    kept: Kept
    over: bool
    """False: it is being answered, by another worker."""


class Shelf(Protocol):
    """Keeps responses, and finds those of other workers. The others' calls raise Fault."""

    def keep(self, name: str, response: Kept) -> None:
        """Keep it, as the store does."""

    async def look(self, name: str, owner: str) -> Seen | None:
        """The response; None: there is none for this caller."""

    async def cancel(self, name: str, owner: str) -> bytes | None:
        """End the work that another worker does on it; the response as it was left.

        None: no other does any.
        """

    async def forget(self, name: str, owner: str) -> bool:
        """Whether there was one to forget."""


@dataclass(frozen=True, slots=True)
class OwnShelf:
    """That of an edge in one process."""

    store: ResponseStore

    def keep(self, name: str, response: Kept) -> None:
        """Keep it."""
        self.store.keep(name, response)

    async def look(self, name: str, owner: str) -> Seen | None:
        """What is kept is over."""
        found = self.store.find(name, owner)
        return None if found is None else Seen(found, over=True)

    async def cancel(self, name: str, owner: str) -> bytes | None:  # noqa: ARG002
        """There is no other worker."""
        return None

    async def forget(self, name: str, owner: str) -> bool:
        """Of the store."""
        return self.store.forget(name, owner)
