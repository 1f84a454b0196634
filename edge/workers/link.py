"""Calls between a worker and its parent, both ways, over a socket that the two share by birth.

A call costs two small frames; there is no address, no file and nothing to authenticate. When the
other end dies the link closes, and with it every call that waits. What one end sends arrives in
its order, and handlers that are no coroutines run in it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from chassis import log
from chassis.errors import Fault, Reason
from edge.workers.frames import Frame, Kind, TooLarge, Unpacker, packed

A = TypeVar("A")
R = TypeVar("R")

_ANSWER_S = 5.0
_UNSENT_BYTES = 16 * 1024 * 1024
"""Beyond it nothing is told any more: the other end does not keep up."""
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Method(Generic[A, R]):
    """Something that can be called at the other end."""

    name: str
    argument: Any
    """The type, as msgspec takes it."""
    answer: Any


@dataclass(frozen=True, slots=True)
class Bound:
    """A method, and what answers it: handler(argument) → answer, at once or later.

    A Fault that it raises is raised at the caller.
    """

    method: Method[Any, Any]
    handler: Callable[[Any], Any]


class _Told(msgspec.Struct):
    """A Fault on its way."""

    reason: str
    message: str
    retry_after_s: float | None
    metadata: dict[str, str]


@lru_cache(256)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


class Link(asyncio.Protocol):
    """One end."""

    def __init__(self, most_bytes: int, bounds: Iterable[Bound] = ()) -> None:
        """`most_bytes`: of a frame that comes in."""
        self._unpacker = Unpacker(most_bytes)
        self._handlers: dict[str, Bound] = {}
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._number = 0
        self._transport: asyncio.Transport | None = None
        self.closed = asyncio.Event()
        """The other end is gone."""
        self.answers(bounds)

    async def connect(self, end: socket.socket) -> None:
        """Begin, over this socket."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    def answers(self, bounds: Iterable[Bound]) -> None:
        """Answer these methods, too."""
        self._handlers |= {bound.method.name: bound for bound in bounds}

    async def call(self, method: Method[A, R], argument: A, within_s: float = _ANSWER_S) -> R:
        """What the other end answers. Raises Fault."""
        self._number += 1
        number = self._number
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            if self._transport is None or self._is_behind(self._transport):
                raise _no_answer()
            self._transport.write(packed(Kind.CALL, number, method.name, _encode(argument)))
            async with asyncio.timeout(within_s):
                body = await answer
        except TimeoutError:
            raise _no_answer() from None
        finally:
            self._waiting.pop(number, None)
        return cast("R", _decoder(method.answer).decode(body))

    def tell(self, method: Method[A, None], argument: A) -> bool:
        """Call without waiting. False, and lost, when the other end is gone, or far behind."""
        if self._transport is None:
            return False
        if self._is_behind(self._transport):
            log.get().warning("the other end does not keep up", method=method.name)
            return False
        self._transport.write(packed(Kind.TELL, 0, method.name, _encode(argument)))
        return True

    def close(self) -> None:
        """End the link; whoever waits for an answer hears of it."""
        if self._transport is not None:
            self._transport.abort()

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Take in what came; the link ends when that is nothing a link of ours would say."""
        try:
            for frame in self._unpacker.feed(data):
                self._receive(frame)
        except (TooLarge, msgspec.DecodeError) as error:
            log.get().error("a link is broken", why=str(error))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Nobody answers any more."""
        self._transport = None
        self.closed.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_no_answer())
        for task in self._running:
            task.cancel()

    # The rest.

    def _is_behind(self, transport: asyncio.Transport) -> bool:
        return transport.get_write_buffer_size() > _UNSENT_BYTES

    def _receive(self, frame: Frame) -> None:
        if frame.kind in (Kind.TELL, Kind.CALL):
            self._handle(frame)
            return
        answer = self._waiting.get(frame.number)
        if answer is None or answer.done():  # whoever asked has gone
            return
        if frame.kind is Kind.FAULT:
            answer.set_exception(_fault(frame.body))
        else:
            answer.set_result(bytes(frame.body))

    def _handle(self, frame: Frame) -> None:
        try:
            bound = self._handlers[frame.method]
            result = bound.handler(_decoder(bound.method.argument).decode(frame.body))
        except Exception as error:
            self._fail(frame, error)
            return
        if isinstance(result, Awaitable):
            task = asyncio.get_running_loop().create_task(self._later(frame, result))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        else:
            self._answer(frame, result)

    async def _later(self, frame: Frame, result: Awaitable[Any]) -> None:
        try:
            self._answer(frame, await result)
        except Exception as error:
            self._fail(frame, error)

    def _answer(self, frame: Frame, result: Any) -> None:
        if frame.kind is Kind.CALL:
            self._reply(Kind.ANSWER, frame, _encode(result))

    def _fail(self, frame: Frame, error: Exception) -> None:
        if not isinstance(error, Fault):
            log.get().error("bug", method=frame.method, exc_info=error)
            error = Fault(Reason.INTERNAL, "Something went wrong inside the edge.")
        if frame.kind is Kind.CALL:
            told = _Told(error.reason, error.message, error.retry_after_s, dict(error.metadata))
            self._reply(Kind.FAULT, frame, _encode(told))

    def _reply(self, kind: Kind, frame: Frame, body: bytes) -> None:
        if self._transport is not None:  # bounded by the calls that the other end has open
            self._transport.write(packed(kind, frame.number, frame.method, body))


def _fault(body: msgspec.Raw) -> Fault:
    told: _Told = _decoder(_Told).decode(body)
    return Fault(
        Reason(told.reason),
        told.message,
        retry_after_s=told.retry_after_s,
        metadata=told.metadata,
    )


def _no_answer() -> Fault:
    message = "The edge's parent process does not answer at the moment; try again shortly."
    return Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
