"""What waits for the reader of one request: bounded, and never in the way of who fills it.

Progress that was not read yet is replaced by newer progress, a preview by a newer one. Pictures are
kept: when more of them wait than there is room for, the request ends with `slow_reader`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from chassis.errors import Fault, Reason
from services.diffusion.values import Event, Image, Preview, Progress

ROOM_BYTES = 64 << 20
"""For pictures that wait; one alone always has room."""


class Outbox:
    """Filled and read on the event loop."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self._room_bytes = room_bytes
        self._waiting: deque[Event] = deque()
        self._held_bytes = 0
        self._over = False
        self._fault: BaseException | None = None
        self._news = asyncio.Event()

    def put(self, event: Event) -> None:
        """Raises Fault SLOW_READER."""
        if isinstance(event, Progress | Preview):
            self._drop(type(event))
        if isinstance(event, Image):
            if self._held_bytes and self._held_bytes + len(event.file.data) > self._room_bytes:
                raise slow_reader()
            self._held_bytes += len(event.file.data)
        self._waiting.append(event)
        self._news.set()

    def end(self, fault: BaseException | None = None) -> None:
        """Nothing more will come; with `fault`, what waits is dropped and it is raised."""
        if fault is not None:
            self._waiting.clear()
            self._fault = fault
        self._over = True
        self._news.set()

    async def read(self) -> AsyncIterator[Event]:
        """All there is, until the end. Raises what the work ended with."""
        while True:
            while self._waiting:
                event = self._waiting.popleft()
                if isinstance(event, Image):
                    self._held_bytes -= len(event.file.data)
                yield event
            if self._fault is not None:
                raise self._fault
            if self._over:
                return
            self._news.clear()
            await self._news.wait()

    def _drop(self, kind: type[Event]) -> None:
        """What of its kind nobody has read; there is one at most."""
        for event in self._waiting:
            if isinstance(event, kind):
                self._waiting.remove(event)
                return


def slow_reader() -> Fault:
    """The caller lets more pile up than there is room for."""
    return Fault(
        Reason.SLOW_READER,
        "The pictures were not read for too long, so the request was ended; read the stream while "
        "it runs, or ask for fewer or smaller pictures.",
    )
