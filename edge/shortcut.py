"""The way to the routes that run models, past the layers that FastAPI puts around every route.

A stream is resumed through all that await it and written through all that wrap `send`, once for
each token; what those layers do is done here once a request. Only what is named exactly comes this
way: other paths and methods, refusals and all else are the router's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from chassis.errors import Fault
from edge import errors


@dataclass(frozen=True, slots=True)
class _Exactly:
    """A route, as far as the access layer asks."""

    path: str
    endpoint: ASGIApp


class Shortcut:
    """Wraps the router."""

    def __init__(self, app: ASGIApp, endpoints: Mapping[str, ASGIApp]) -> None:
        """`endpoints`: by path, for POST; the router has them too, and documents them."""
        self._app = app
        self._routes = {
            path: _Exactly(path, endpoint)
            for path, endpoint in endpoints.items()
            if "{" not in path  # its endpoint wants what stands there
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a Fault becomes its answer. Raises what is a bug, answered or not."""
        route = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if route is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        try:
            await route.endpoint(scope, receive, send)
        except Fault as fault:
            await errors.response(fault)(scope, receive, send)
        except Exception:
            # After the first byte it is too late: the server refuses a second beginning.
            await errors.response(errors.bug())(scope, receive, send)
            raise
