"""A span around every request, where traces are told: route, status and outcome, nothing else.

The outermost layer of all, so that the access log knows the trace, too. Probes have no span.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis import tracing
from chassis.errors import Reason
from edge import errors
from edge.probes import METHODS, PROBES

_HEADER = tracing.TRACEPARENT.encode()
_TRACEPARENT_CHARS = 55
_OK = "ok"


class Traced:
    """Wraps the access layer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, and tell of it."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        span = tracing.arrive(method, _traceparent_of(scope), {"http.request.method": method})
        status, done = 0, False

        async def watched(message: Message) -> None:
            nonlocal status, done
            status = message.get("status", status)
            done = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            outcome = str(errors.failure.get() or (_OK if done else Reason.CANCELLED))
            _tell(span, method, getattr(scope.get("route"), "path", ""), status, outcome)


def _tell(span: tracing.Span, method: str, route: str, status: int, outcome: str) -> None:
    said: dict[str, str | int] = {"http.response.status_code": status, "cohabit.outcome": outcome}
    if route:  # the template: paths are without bound, and may hold what callers typed
        said["http.route"] = route
    span.tell(said, f"{method} {route}".rstrip())
    # A caller's mistake is no failure of ours; a stream may fail after its status.
    broken = status >= 500 or (status < 400 and outcome not in {_OK, Reason.CANCELLED})
    span.end(outcome if broken else "")


def _traceparent_of(scope: Scope) -> str:
    """What the caller says that it is part of; never more than the first version has."""
    for name, value in scope["headers"]:
        if name == _HEADER:
            return str(value[:_TRACEPARENT_CHARS].decode("latin-1"))
    return ""
