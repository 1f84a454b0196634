"""Responses that are being answered: to look at, and to cancel by somebody else than their client.

They are bounded by the entrance, which bounds the requests in progress.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress

from chassis.errors import Fault, Reason
from edge.answering import Generated, Messages
from edge.responses.calls import STOP_S
from edge.responses.ids import response_id
from edge.responses.objects import ListedItem
from edge.responses.writer import Writer


class Run:
    """One response being answered. `owner` as in the store; `given`: what went into it."""

    def __init__(self, owner: str, writer: Writer, given: list[ListedItem]) -> None:
        self.owner, self.writer, self.given = owner, writer, given
        self.over = asyncio.Event()
        """Its work has ended, and what is kept of it is in the store."""
        self._waiting: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def in_progress(self) -> bool:
        """Its work goes on."""
        return self.writer.response.status == "in_progress"

    async def cancel(self) -> bytes:
        """End its work; the response as it was left."""
        self.stop()
        with suppress(TimeoutError):  # a client that reads slowly is told later
            async with asyncio.timeout(STOP_S):
                await self.over.wait()
        return self.writer.body()

    def stop(self) -> None:
        """End its work at the engine, or its waiting for one; its client is told why."""
        self._stopped = True
        self.writer.leave()
        if self._waiting is not None:
            self._waiting.cancel()

    async def until_stopped(self, messages: Messages) -> Messages:
        """The same messages. Raises Fault CANCELLED once it is stopped.

        Only a wait for the next message is cancelled from outside, and never a write to a client:
        after that the stream could not be ended in order.
        """
        async with aclosing(messages):
            while not self._stopped:
                try:
                    message = await self._next(messages)
                except StopAsyncIteration:
                    break
                yield message
        if self._stopped:
            raise _cancelled()

    async def _next(self, messages: Messages) -> Generated:
        task = self._waiting = asyncio.current_task()
        try:
            return await anext(messages)
        except asyncio.CancelledError:
            # Its client, or a stopping server, may have cancelled it too: their wish goes first.
            if self._stopped and task is not None and task.uncancel() == 0:
                raise _cancelled() from None
            raise
        finally:
            self._waiting = None


class InFlight:
    """All of this process, by id. `slot`: which of the edge's workers that is."""

    def __init__(self, slot: int = 0) -> None:
        self._slot = slot
        self._runs: dict[str, Run] = {}

    def new_id(self) -> str:
        """An id for a response, which tells where it is answered."""
        return response_id(self._slot)

    @contextmanager
    def holding(self, run: Run) -> Iterator[None]:
        """Know of `run` until the block ends."""
        name = run.writer.response.id
        self._runs[name] = run
        try:
            yield
        finally:
            del self._runs[name]
            run.over.set()

    def find(self, name: str, owner: str) -> Run | None:
        """The run of this caller; None: there is none."""
        run = self._runs.get(name)
        return run if run is not None and run.owner == owner else None


def _cancelled() -> Fault:
    return Fault(Reason.CANCELLED, "The response was cancelled, as another request asked.")
