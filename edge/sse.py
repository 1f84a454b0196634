"""Streams server-sent events and never leaves its client in the dark.

The HTTP status is decided by what comes first: events (200), or a Fault (its own status). If
neither comes within `keepalive_s`, the stream begins anyway and says so, in a comment or as the
dialect has it, and again whenever it is silent that long. After the headers, a Fault is an `error`
event and the stream ends without its last event; so it does when the server stops and cancels it.
A client that leaves, or takes nothing for `stall_s`, ends the source.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Send

from chassis.errors import Fault, Reason
from edge import errors, speech
from edge.disconnect import ClientGone, while_connected


@dataclass(frozen=True, slots=True)
class Note:
    """Why nothing comes yet, in words for the next keepalive comment. One line."""

    text: str


Source = AsyncGenerator[bytes | Note, None]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a stream may be silent, and how long its client may take nothing."""

    keepalive_s: float
    stall_s: float


_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Proxies of the nginx kind hold events back without it.
    (b"x-accel-buffering", b"no"),
]


async def stream_events(source: Source, patience: Patience, receive: Receive, send: Send) -> None:
    """Send what `source` yields, each item (whole events) in one write, until it ends.

    Raises Fault when nothing has been sent yet, so that it becomes an HTTP status.
    """
    pen = _Pen(send, patience)
    try:
        await while_connected(receive, _apart(_pump(source, pen)))
    except Fault as fault:
        if not pen.began:
            raise
        if not isinstance(fault, ClientGone):
            await pen.fail(fault)
    except asyncio.CancelledError:
        if pen.stalled and pen.task.uncancel() == 0:
            errors.failure.set(Reason.SLOW_READER)
            return
        if pen.began and not pen.stalled:
            await pen.fail(errors.stopping())
        raise
    finally:
        pen.close()


async def _apart(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` in a task of its own, which ends before this one does, also when cancelled.

    So each of its steps, one a token, is not resumed through all the layers that await the stream.
    """
    await asyncio.create_task(work)


async def _pump(source: Source, pen: "_Pen") -> None:
    try:
        async with aclosing(source):
            async for item in source:
                if isinstance(item, Note):
                    pen.note = item.text
                elif item:
                    await pen.write(item)
    except Fault:
        raise
    except Exception as error:
        raise errors.internal(error) from None
    await pen.write(b"", more=False)


class _Pen:
    """Writes to the client, and keeps it company with comments while nothing is written.

    One timer for the whole stream: it looks at the time of the last write and sets itself again,
    so that a write costs no timer.
    """

    def __init__(self, send: Send, patience: Patience) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - made inside a coroutine
        self.task = task
        self.began = False
        self.stalled = False
        self.note = ""
        self._send = send
        self._keepalive_s, self._stall_s = patience.keepalive_s, patience.stall_s
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._writing = False
        self._comment: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(self._keepalive_s, self._look)

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Send `data`, headers first if need be; waits while the client is slow."""
        if self._comment is not None:
            await self._comment
        await self._out(data, more)

    async def fail(self, fault: Fault) -> None:
        """End the stream with an error event."""
        await self.write(errors.event(fault), more=False)

    def close(self) -> None:
        """Stop the timer."""
        self._timer.cancel()
        if self._comment is not None:
            self._comment.cancel()

    async def _out(self, data: bytes, more: bool) -> None:
        self._written_at = self._loop.time()
        self._writing = True
        if not self.began:
            self.began = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._writing = False

    def _look(self) -> None:
        silent_s = self._loop.time() - self._written_at
        limit_s = self._stall_s if self._writing else self._keepalive_s
        left_s = limit_s - silent_s
        if left_s <= 0 and self._writing:
            # A cancel is the one thing that ends a wait for a client that takes nothing.
            self.stalled = True
            self.task.cancel()
            return
        if left_s <= 0:
            self._comment = self._loop.create_task(self._say())
            left_s = self._keepalive_s
        self._timer = self._loop.call_later(min(left_s, self._keepalive_s), self._look)

    async def _say(self) -> None:
        await self._out(speech.current.get().keepalive(self.note), True)
        self._comment = None
