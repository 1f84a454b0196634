"""HTTP/1.1 as the edge lets it in: uvicorn's parser, with a bound on headers in size and in time.

What never becomes a request is answered here, in the envelope of every other error: headers that
are too large (431) and what is no HTTP (400). Headers that do not arrive in time end the
connection. A wish to change the protocol (`upgrade: h2c`) is passed over, as RFC 9110 allows, and
the request served as it is. HTTP/1.0 knows no chunks: the end of the connection ends its answers.

Of an edge that is about to stop every answer that begins is the last one on its connection, and a
connection on which nothing is asked is left when it has been quiet for a while.

Requests that are sent ahead of an answer wait their turn, and nothing more is read meanwhile. So
the end of such a connection is looked for: without, what its client asked for would go on for
nobody.

Requests themselves are the application's affair.
"""

import asyncio
import fcntl
import select
import termios
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from chassis.errors import Fault, Reason
from edge import errors
from edge.standing import Standing

MOST_HEADER_BYTES = 64 * 1024
_LINGER_S = 2.0
_LOOK_S: Final = 0.25
"""How often a connection that is not read is looked at for its end."""
_GONE: Final = select.POLLRDHUP | select.POLLHUP | select.POLLERR
_LINE_BYTES = 4  # ": " and the end of the line
_OF_THE_UPGRADE = (b"upgrade", b"http2-settings")


class _At(Enum):
    """Where in a message the parser is."""

    BETWEEN = auto()
    HEADERS = auto()
    BODY = auto()


class _IdentityCycle(RequestResponseCycle):
    """A request of HTTP/1.0: its answer is not chunked, and ends with the connection."""

    async def send(self, message: Any) -> None:
        """As for HTTP/1.1, without frames around the body."""
        if message["type"] == "http.response.start":
            self.chunked_encoding = False
        else:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class Protocol(HttpToolsProtocol):
    """One connection."""

    headers_s: ClassVar[float] = 10.0
    """Headers are complete within this time of the connection's, or of their own, first byte."""

    def __init__(
        self, *args: Any, standing: Standing, left: Callable[[], None], **kwargs: Any
    ) -> None:
        """`left` is called when the connection has ended; the rest is uvicorn's."""
        super().__init__(*args, **kwargs)
        self._standing, self._left = standing, left
        self._moved_at = 0.0
        """When something last came in, or an answer went out whole."""
        self._at = _At.BETWEEN
        self._header_bytes = 0
        # Bytes since the last sign of progress: what the parser may be holding of one header.
        self._loose_bytes = 0
        self._progress = False
        self._fault: Fault | None = None
        self._refused = False
        self._deadline: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        """The request that is being answered; uvicorn's `cycle` is the newest that came."""
        self._looking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first headers."""
        super().connection_made(transport)
        self._moved_at = self.loop.time()
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered; those that wait behind it never begin."""
        self._clear_deadline()
        if self._looking is not None:
            self._looking.cancel()
        self.pipeline.clear()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self._left()

    def data_received(self, data: bytes) -> None:
        """Parse, unless the connection is only kept for its peer to read the refusal."""
        if self._refused:
            return
        self._moved_at = self.loop.time()
        self._unset_keepalive_if_required()
        self._progress = False
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._refuse(self._fault or _malformed(error))
            return
        self._loose_bytes = 0 if self._progress else self._loose_bytes + len(data)
        if self._loose_bytes > MOST_HEADER_BYTES:
            self._refuse(_too_large())
        elif self._at is not _At.HEADERS and self._is_answering:
            self._clear_deadline()
        elif self._deadline is None:
            self._await_headers()

    # What the parser tells.

    def on_message_begin(self) -> None:
        """Count from nothing."""
        super().on_message_begin()
        self._at = _At.HEADERS
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Count."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count. Trailers come here, too, and are no headers: a proxy has not looked at them."""
        self._count(len(name) + len(value) + _LINE_BYTES)
        if self._at is not _At.BODY:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request, unless the parser is about to leave over an upgrade."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise self._at_fault(_no_tunnel())
            return
        super().on_headers_complete()
        self._at, self._progress = _At.BODY, True
        if self._standing.draining:
            self.cycle.keep_alive = False
        if self.scope["http_version"] == "1.0":
            # The request is a task by now, but has not run yet.
            self.cycle.__class__ = _IdentityCycle
        if self.pipeline and self._looking is None:
            self._looking = self.loop.call_later(_LOOK_S, self._look)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Take in a piece of the body."""
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole."""
        if self.parser.should_upgrade():
            return
        self._at, self._progress = _At.BETWEEN, True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Headers that waited behind this answer have their time from now."""
        super().on_response_complete()
        self._moved_at = self.loop.time()
        if self._deadline is not None:
            self._await_headers()

    # How it ends.

    def last_answer(self) -> None:
        """Say so in an answer whose headers are not out yet."""
        if self._is_answering and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def leave_if_quiet(self, for_s: float) -> None:
        """Close the connection if nothing is asked on it, and has not been for so long."""
        if self._is_answering or self._at is not _At.BETWEEN or self.transport.is_closing():
            return
        if self.loop.time() - self._moved_at >= for_s and not self._unread():
            self.transport.close()

    def _look(self) -> None:
        """End a connection that is not read once its client has left: nobody else would tell."""
        self._looking = None
        if not self.pipeline or self.transport.is_closing():
            return
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), _GONE)
        if poll.poll(0):
            self.transport.abort()
        else:
            self._looking = self.loop.call_later(_LOOK_S, self._look)

    def _unread(self) -> bool:
        """Whether the kernel holds bytes that the loop has not read yet."""
        socket = self.transport.get_extra_info("socket")
        waiting = fcntl.ioctl(socket.fileno(), termios.FIONREAD, bytes(4))
        return waiting != bytes(4)

    # How it goes on.

    def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as upgrade:
                # The parser has skipped the body. Another one reads the request without the wish.
                rest = rest[upgrade.args[0] :]
                headers = self._headers_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(headers)
            else:
                return

    def _headers_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        for name, value in self.headers:
            if name == b"connection":
                words = [word.strip() for word in value.split(b",")]
                kept = b", ".join(w for w in words if w.lower() not in _OF_THE_UPGRADE)
                lines.append(name + b": " + kept)
            elif name not in _OF_THE_UPGRADE:
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _count(self, more_bytes: int) -> None:
        self._header_bytes += more_bytes
        if self._header_bytes > MOST_HEADER_BYTES:
            raise self._at_fault(_too_large())

    def _at_fault(self, fault: Fault) -> Fault:
        # What a callback raises comes out of the parser as an error of its own.
        self._fault = fault
        return fault

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, fault: Fault) -> None:
        self._refused = True
        self._clear_deadline()
        if self._is_answering:
            if self._at is not _At.BODY:
                self.cycle.keep_alive = False  # what was asked before is answered, then it ends
                return
            if self.cycle.response_started or self.pipeline:
                self.transport.close()
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._answer(fault)

    def _answer(self, fault: Fault) -> None:
        body = errors.envelope(fault)
        self.transport.write(
            STATUS_LINE[fault.row.http] + b"content-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body
        )
        # Closing on a peer that still writes would throw away what it has not read yet.
        with suppress(OSError):  # it has gone already
            self.transport.write_eof()
        self.flow.resume_reading()
        self._deadline = self.loop.call_later(_LINGER_S, self.transport.close)

    def _await_headers(self) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(self.headers_s, self._late)

    def _late(self) -> None:
        self._deadline = None
        if self._is_answering:
            self._await_headers()  # it may be us who do not read on
        else:
            self.transport.close()

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _too_large() -> Fault:
    message = f"The request's headers are larger than {MOST_HEADER_BYTES} bytes; send fewer."
    return Fault(Reason.HEADERS_TOO_LARGE, message)


def _no_tunnel() -> Fault:
    message = "The edge is no proxy and opens no tunnels; send it requests, not CONNECT."
    return Fault(Reason.INVALID_REQUEST, message)


def _malformed(error: httptools.HttpParserError) -> Fault:
    why = "" if isinstance(error, httptools.HttpParserCallbackError) else f" ({error})"
    message = f"This is not a valid request of HTTP/1.1{why}; use plain HTTP, without TLS."
    return Fault(Reason.INVALID_REQUEST, message)
