"""All routes as one FastAPI application, which documents them and refuses all others."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Scope

from chassis.errors import Fault, Reason
from edge import errors, openapi, speech
from edge.anthropic import models as anthropic_models
from edge.anthropic.words import ANTHROPIC
from edge.catalog import Catalog, Health, ModelList, ModelObject
from edge.described_text import CHAT_PATH
from edge.docs import DOCS_PATH, OPENAPI_PATH, add_docs
from edge.documenting import PAGED, SPOKEN, answers
from edge.house import House
from edge.house_views import HouseStatus
from edge.keys.caller import caller_of
from edge.keys.described import lock
from edge.standing import Standing

VERSION = "0.1.0"
_encode = msgspec.json.Encoder().encode


class Room(Protocol):
    """Something that has routes of its own."""

    def add_to(self, app: FastAPI) -> None:
        """Add them."""


def routes(
    raw: Mapping[str, ASGIApp],
    rooms: Iterable[Room],
    catalog: Catalog,
    house: House,
    standing: Standing,
    *,
    keyed: bool,
) -> FastAPI:
    """All routes, with every error in the envelope of its dialect; `raw` are those to models.

    `keyed`: whether keys are asked for, which the gate does and the documentation tells.
    """
    app = FastAPI(
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_own_name,
        # The house tells its own (`traced`, `access`), and nothing that callers said.
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    for path, endpoint in raw.items():
        app.router.routes.append(_RawRoute(path, endpoint, methods=["POST"]))
    for room in rooms:
        room.add_to(app)
    _add_models(app, catalog)
    _add_probes(app, catalog, standing)
    _add_status(app, house)
    _add_welcome(app)
    add_docs(app)
    app.add_exception_handler(Fault, errors.on_fault)
    app.add_exception_handler(HTTPException, _NoRoute(app))
    app.add_exception_handler(Exception, errors.on_bug)
    app.openapi = _Documented(app, tuple(raw), keyed=keyed)  # type: ignore[method-assign]
    return app


class _RawRoute(Route):
    """A route to an ASGI application that, as FastAPI's own do, tells the access layer its path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Starlette has it, and the route in the scope."""
        match, child = super().matches(scope)
        if match is not Match.NONE:
            child["route"] = self
        return match, child


def _own_name(route: APIRoute) -> str:
    return route.name


def _add_models(app: FastAPI, catalog: Catalog) -> None:
    @app.get(
        "/v1/models",
        tags=["models"],
        summary="List the models",
        openapi_extra=PAGED,
        responses=answers(
            (ModelList, anthropic_models.ModelPage), "Every model that can be asked for.", 400, 503
        ),
    )
    async def list_models(request: Request) -> Response:
        if speech.current.get() is not ANTHROPIC:
            return _json(await catalog.models(caller_of(request.scope)))
        wish = anthropic_models.page_wish(request.query_params)
        named = await catalog.named(caller_of(request.scope))
        return _json(anthropic_models.page(named, wish))

    @app.get(
        "/v1/models/{name:path}",
        tags=["models"],
        summary="Look at one model",
        openapi_extra=SPOKEN,
        responses=answers((ModelObject, anthropic_models.ModelInfo), "The model.", 404, 503),
    )
    async def get_model(name: str, request: Request) -> Response:
        caller = caller_of(request.scope)
        if speech.current.get() is not ANTHROPIC:
            return _json(await catalog.model(name, caller))
        return _json(anthropic_models.info(name, await catalog.behind(name, caller)))


def _add_probes(app: FastAPI, catalog: Catalog, standing: Standing) -> None:
    @app.get(
        "/health",
        tags=["probes"],
        summary="Ask whether the edge is alive",
        responses=answers(Health, "Alive; `reason` says what is amiss elsewhere."),
    )
    async def health() -> Response:
        if standing.draining:
            return _json(Health("draining", standing.amiss))
        seen = await catalog.health()
        if seen.status == "ok" and standing.amiss:
            return _json(Health("degraded", standing.amiss))
        return _json(seen)

    @app.get(
        "/readyz",
        tags=["probes"],
        summary="Ask whether requests are served",
        responses=answers(Health, "Requests are served.", 503),
    )
    async def readyz() -> Response:
        if standing.draining:
            raise Fault(Reason.SERVICE_UNAVAILABLE, standing.amiss, retry_after_s=1.0)
        await catalog.ready()
        return _json(Health("ok"))


def _add_status(app: FastAPI, house: House) -> None:
    @app.get(
        "/status",
        tags=["probes"],
        summary="See what this house is, at this moment",
        responses=answers(HouseStatus, "Services, device, models and queues."),
    )
    async def status() -> Response:
        return _json(await house.status())


def _add_welcome(app: FastAPI) -> None:
    welcome = openapi.Welcome(version=VERSION, docs=DOCS_PATH, openapi=OPENAPI_PATH)

    @app.get(
        "/",
        tags=["docs"],
        summary="See what this is",
        responses=answers(openapi.Welcome, "Where the documentation is."),
    )
    async def root() -> Response:
        return _json(welcome)


def _json(value: Any) -> Response:
    return Response(_encode(value), media_type="application/json")


class _Documented:
    """What FastAPI knows of its routes, completed once, on first use."""

    def __init__(self, app: FastAPI, raw: tuple[str, ...], *, keyed: bool) -> None:
        self._app, self._raw, self._keyed = app, raw, keyed
        self._document: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self._document is None:
            known = get_openapi(
                title="Cohabit",
                version=VERSION,
                description=openapi.DESCRIPTION,
                routes=self._app.routes,
                tags=openapi.tags(self._raw),
            )
            whole = openapi.complete(known, self._raw)
            self._document = lock(whole) if self._keyed else whole
        return self._document


class _NoRoute:
    """Exception handler for what the router refuses: no such path, or not with this method."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, request: Request, error: Exception) -> Response:
        """The refusal, naming what there is."""
        method, path = request.method, request.url.path[:200]
        if isinstance(error, HTTPException) and error.status_code == 405:
            allowed = ", ".join(self._methods(request.scope))
            message = f"{path} does not take {method}; it takes {allowed}."
            answer = errors.response(Fault(Reason.METHOD_NOT_ALLOWED, message))
            answer.headers["allow"] = allowed
            return answer
        known = ", ".join(str(path) for path in self._paths())
        message = f"There is no {method} {path} here; there are {known}."
        return errors.response(Fault(Reason.ROUTE_NOT_FOUND, message))

    def _methods(self, scope: Scope) -> list[str]:
        """What the path takes, by all its routes: the router's refusal knows the first alone."""
        routes = (route for route in self._app.routes if isinstance(route, Route))
        fitting = [one for one in routes if one.matches(scope)[0] is not Match.NONE]
        return sorted({method for one in fitting for method in one.methods or ()})

    def _paths(self) -> list[str]:
        shown = (CHAT_PATH, *self._app.openapi()["paths"], OPENAPI_PATH, DOCS_PATH)
        return list(dict.fromkeys(shown))
