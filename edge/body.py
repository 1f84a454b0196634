"""Request bodies: read once, bounded one by one and together, and in time."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import Request

from chassis.errors import Fault, Reason
from edge.disconnect import ClientGone
from edge.errors import bad_field

MIB = 1024 * 1024


class Bodies:
    """Reads bodies of at most `max_one` bytes, `max_all` held at once, each within `within_s`."""

    def __init__(self, max_one: int, max_all: int, within_s: float) -> None:
        self._max_one = max_one
        self._max_all = max_all
        self._within_s = within_s
        self.held = 0

    @contextmanager
    def room(self) -> Iterator["Room"]:
        """Space for one request's body, given back when the block ends."""
        room = Room(self)
        try:
            yield room
        finally:
            self.held -= room.taken

    def take(self, room: "Room", count: int) -> None:
        """Account for `count` more bytes. Raises Fault when a bound is met."""
        room.taken += count
        self.held += count
        if room.taken > self._max_one:
            raise self._too_large()
        if self.held > self._max_all:
            message = "Too many large requests are being read at the moment; try again shortly."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)

    async def within(self, request: Request, room: "Room") -> bytes:
        """The whole body. Raises Fault: too large, too slow, client gone."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._max_one:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._within_s):
                return await self._read(request, room)
        except TimeoutError:
            message = f"The request body did not arrive within {self._within_s:g} s; send it again."
            raise Fault(Reason.INVALID_REQUEST, message) from None

    async def _read(self, request: Request, room: "Room") -> bytes:
        parts: list[bytes] = []
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            self.take(room, len(part))
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _too_large(self) -> Fault:
        return bad_field(
            None,
            f"The request body is larger than {self._max_one // MIB} MiB; send a smaller one.",
            Reason.PAYLOAD_TOO_LARGE,
        )


class Room:
    """The bytes one request holds."""

    __slots__ = ("_bodies", "taken")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.taken = 0

    async def read(self, request: Request) -> bytes:
        """The whole body of `request`. Raises Fault."""
        return await self._bodies.within(request, self)
