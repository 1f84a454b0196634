"""Request bodies: read once, bounded one by one and together, and in time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from chassis.errors import Fault, Reason
from edge.disconnect import ClientGone
from edge.errors import bad_field

MIB = 1024 * 1024

Keep = Callable[[bytes], Awaitable[None]]
"""Takes the next part of a body. Raises Fault."""


class Bodies:
    """Reads bodies, `max_all` bytes held at once, each within `within_s`.

    One has at most `max_one` bytes, unless its route allows for more.
    """

    def __init__(self, max_one: int, max_all: int, within_s: float) -> None:
        self._max_one = max_one
        self._max_all = max_all
        self._within_s = within_s
        self.held = 0

    @contextmanager
    def room(self, max_one: int = 0) -> Iterator["Room"]:
        """Space for one request's body, given back when the block ends; 0: of the usual size."""
        room = Room(self, max_one or self._max_one)
        try:
            yield room
        finally:
            self.held -= room.taken

    def hold(self, room: "Room", count: int) -> None:
        """Account for `count` more bytes of a request. Raises Fault when all hold too much."""
        room.taken += count
        self.held += count
        if self.held > self._max_all:
            message = "Too many large requests are being read at the moment; try again shortly."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)

    async def within(self, request: Request, room: "Room", keep: Keep) -> None:
        """The whole body, part by part. Raises Fault: too large, too slow, client gone."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > room.max_one:
            raise _too_large(room.max_one)
        try:
            async with asyncio.timeout(self._within_s):
                await self._read(request, room, keep)
        except TimeoutError:
            message = f"The request body did not arrive within {self._within_s:g} s; send it again."
            raise Fault(Reason.INVALID_REQUEST, message) from None

    async def _read(self, request: Request, room: "Room", keep: Keep) -> None:
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            room.take(len(part))
            await keep(part)
            if not message.get("more_body", False):
                return


class Room:
    """The bytes one request holds."""

    __slots__ = ("_bodies", "max_one", "taken")

    def __init__(self, bodies: Bodies, max_one: int) -> None:
        self._bodies = bodies
        self.max_one = max_one
        self.taken = 0

    async def read(self, request: Request) -> bytes:
        """The whole body of `request`. Raises Fault."""
        parts: list[bytes] = []

        async def keep(part: bytes) -> None:
            parts.append(part)

        await self.read_into(request, keep)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read_into(self, request: Request, keep: Keep) -> None:
        """The whole body of `request`, to `keep` as it arrives. Raises Fault."""
        await self._bodies.within(request, self, keep)

    def take(self, count: int) -> None:
        """Account for `count` more bytes of the body. Raises Fault when a bound is met."""
        if self.taken + count > self.max_one:
            raise _too_large(self.max_one)
        self._bodies.hold(self, count)

    def hold(self, count: int) -> None:
        """Account for `count` bytes that are held beside the body. Raises Fault."""
        self._bodies.hold(self, count)


def _too_large(max_one: int) -> Fault:
    return bad_field(
        None,
        f"The request body is larger than {max_one // MIB} MiB; send a smaller one.",
        Reason.PAYLOAD_TOO_LARGE,
    )
