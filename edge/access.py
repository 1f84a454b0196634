"""What happens around every request: its id in and out, one log line, metrics, its failure.

Pure ASGI, and the outermost layer, so that it sees every answer, error pages included. Never told
to anybody: header values, bodies, query strings. The request's id alone is its caller's to choose.
"""

import asyncio
import re
import time
import uuid
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis import log
from chassis.errors import TABLE, Reason
from chassis.metrics import OTHER
from edge import errors, speech, tongues
from edge.keys.caller import name_of
from edge.probes import METHODS, PROBES
from edge.signals import metrics
from edge.signals.access_log import Write, for_debugging, to_stderr
from edge.signals.failures import Failure, Failures, now_utc

REQUEST_ID_HEADER = b"x-request-id"
_MOST_ID_CHARS = 128
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_CLIENT_GONE = 499
_FIRST_FAILURE = 500
_OK = "ok"
_EVENTS = (b"data:", b"event:")


class Access:
    """Wraps the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        write_log: bool,
        write: Write = to_stderr,
        failures: Failures | None = None,
    ) -> None:
        self._app = app
        self._write = write if write_log else None
        self._failures = failures or Failures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request with its id set."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(scope, send)
        log.request_id.set(request.id)
        errors.failure.set(None)
        errors.told.set(None)
        speech.current.set(request.speech)
        metrics.OPEN.inc()
        try:
            await self._app(scope, receive, request.send)
        except asyncio.CancelledError:
            # The server stops and its patience is over; a stream that has begun has said so itself.
            if not request.began:
                await errors.response(errors.stopping())(scope, receive, request.send)
            raise
        except Exception as error:
            fault = errors.internal(error)
            errors.failure.set(fault.reason)
            # Else it is answered already, or its stream is cut: there is nothing more to say.
            if not request.began:
                await errors.response(fault)(scope, receive, request.send)
        finally:
            metrics.OPEN.dec()
            request.count()
            if failure := request.failure():
                self._failures.add(failure)
            if self._write is not None:
                request.log(self._write)


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
        metrics.REQUESTS.labels(route, str(self._ended_with()), self._outcome()).inc()
        metrics.REQUEST_SECONDS.labels(route).observe(time.monotonic() - self._began)
        if self._first_event_s is not None:
            metrics.FIRST_EVENT_SECONDS.observe(self._first_event_s)

    def failure(self) -> Failure | None:
        """What is to be kept of it, if it failed by no fault of its client.

        A probe that says no every few seconds would leave room for nothing else.
        """
        reason, fault = errors.failure.get(), errors.told.get()
        status = TABLE[reason].http if reason else self._status
        if status < _FIRST_FAILURE or self._route() in PROBES:
            return None
        # The words of other rows may quote what the client has sent.
        own = fault is not None and fault.row.openai_type == "server_error"
        return Failure(
            at=now_utc(),
            request_id=self.id,
            method=self._method(),
            route=self._route(),
            status=status,
            reason=reason or "",
            message=fault.message if fault is not None and own else "",
        )

    def log(self, write: Write) -> None:
        """Write the line."""
        route, first = self._route(), self._first_event_s
        if route in PROBES:
            write = for_debugging
        told: dict[str, Any] = {
            "method": self._method(),
            "route": route,
            "status": self._ended_with(),
            "ms": round((time.monotonic() - self._began) * 1000, 1),
            "outcome": self._outcome(),
            "bytes": self._bytes,
        }
        if first is not None:
            told["ttft_ms"] = round(first * 1000, 1)
        if name := name_of(self._scope):
            told["key"] = name
        write(told)

    def _method(self) -> str:
        method = str(self._scope["method"])
        return method if method in METHODS else OTHER

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
