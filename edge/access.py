"""What happens around every request: its id in and out, one log line, metrics.

Pure ASGI, and the outermost layer, so that it sees every answer, error pages included. Never
logged: header values, bodies, query strings.
"""

import asyncio
import re
import time
import uuid

from prometheus_client import Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis import log
from chassis.errors import Reason
from edge import errors, speech, tongues

REQUEST_ID_HEADER = b"x-request-id"
_MOST_ID_CHARS = 128
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_CLIENT_GONE = 499
_OK = "ok"
_EVENTS = (b"data:", b"event:")
_PROBES = {"/readyz", "/health", "/metrics", "/status"}
"""Asked every few seconds by whoever watches; their lines would bury the others."""

REQUESTS = Counter(
    "cohabit_http_requests_total",
    "Finished HTTP requests. The outcome is ok or a reason; a stream may fail after status 200.",
    ["route", "status", "outcome"],
)
SECONDS = Histogram(
    "cohabit_http_request_seconds",
    "Duration of HTTP requests, to the last byte.",
    ["route"],
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
FIRST_EVENT_SECONDS = Histogram(
    "cohabit_http_first_event_seconds",
    "Time to the first event of a stream.",
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
OPEN = Gauge("cohabit_http_open_requests", "HTTP requests in progress.")


class Access:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, *, write_log: bool) -> None:
        self._app = app
        self._write_log = write_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request with its id set."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(scope, send)
        log.request_id.set(request.id)
        errors.failure.set(None)
        speech.current.set(request.speech)
        OPEN.inc()
        try:
            await self._app(scope, receive, request.send)
        except asyncio.CancelledError:
            # The server stops and its patience is over; a stream that has begun has said so itself.
            if not request.began:
                await errors.response(errors.stopping())(scope, receive, request.send)
            raise
        except Exception as error:
            # The application has answered it already (or the stream is cut: nothing more to say).
            errors.failure.set(Reason.INTERNAL)
            log.get().error("bug", exc_info=error)
        finally:
            OPEN.dec()
            request.count()
            if self._write_log:
                request.log()


class _Request:
    """What is to be told of one request."""

    __slots__ = (
        "_began",
        "_bytes",
        "_done",
        "_first_event_s",
        "_scope",
        "_send",
        "_status",
        "id",
        "speech",
    )

    def __init__(self, scope: Scope, send: Send) -> None:
        self.id, self.speech = request_id_of(scope), tongues.speech_of(scope)
        self._scope, self._send = scope, send
        self._began = time.monotonic()
        self._status, self._bytes, self._done = 0, 0, False
        self._first_event_s: float | None = None

    @property
    def began(self) -> bool:
        """The answer's headers are out."""
        return self._status != 0

    async def send(self, message: Message) -> None:
        """Pass a message on, noting what it says."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                *((name, self.id.encode("ascii")) for name in self.speech.id_headers),
            ]
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            self._bytes += len(body)
            self._done = not message.get("more_body", False)
            if self._first_event_s is None and self._tells(body):
                self._first_event_s = time.monotonic() - self._began
        await self._send(message)

    def _tells(self, body: bytes) -> bool:
        # An event, and not one that only keeps the stream open.
        return body.startswith(_EVENTS) and body != self.speech.keepalive("")

    def count(self) -> None:
        """Tell Prometheus."""
        route = self._route()
        REQUESTS.labels(route, str(self._ended_with()), self._outcome()).inc()
        SECONDS.labels(route).observe(time.monotonic() - self._began)
        if self._first_event_s is not None:
            FIRST_EVENT_SECONDS.observe(self._first_event_s)

    def log(self) -> None:
        """Write the line."""
        first = self._first_event_s
        told = {} if first is None else {"ttft_ms": round(first * 1000, 1)}
        route = self._route()
        say = log.get().debug if route in _PROBES else log.get().info
        say(
            "request",
            method=self._scope["method"],
            route=route,
            status=self._ended_with(),
            ms=round((time.monotonic() - self._began) * 1000, 1),
            outcome=self._outcome(),
            bytes=self._bytes,
            **told,
        )

    def _ended_with(self) -> int:
        # A stream that was cut short began with 200; what ended it was its client.
        return self._status if self._done else _CLIENT_GONE

    def _outcome(self) -> str:
        # The status alone would count as served what failed after the headers of its stream.
        return errors.failure.get() or (_OK if self._done else Reason.CANCELLED)

    def _route(self) -> str:
        # The template, never the path: paths are without bound and may hold what callers typed.
        route = self._scope.get("route")
        return str(getattr(route, "path", "-"))


def request_id_of(scope: Scope) -> str:
    """The caller's id for the request, made safe to log and to send on; a new one without."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID_HEADER:
            text = _UNPRINTABLE.sub("", value.decode("latin-1"))[:_MOST_ID_CHARS].strip()
            return text or uuid.uuid4().hex
    return uuid.uuid4().hex
