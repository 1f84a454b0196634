"""The routes of the edge and what they are wired to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Scope

from chassis.admission import Admission
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.place import Waits
from cohabit.llm.v1 import llm_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from edge import errors, openapi
from edge.access import Access
from edge.body import MIB, Bodies
from edge.catalog import Catalog, Health, ModelList, ModelObject
from edge.chat import ChatEndpoint, Door
from edge.config import EdgeConfig
from edge.sse import Patience
from edge.tier import TIERS, TierRule

_VERSION = "0.1.0"
_encode = msgspec.json.Encoder().encode


@asynccontextmanager
async def open_app(config: EdgeConfig, scheduler_address: str) -> AsyncIterator[ASGIApp]:
    """The edge's ASGI application, connected until the block ends."""
    engines = Channels(config.max_idle_engines, llm_pb2_grpc.LanguageModelServiceStub)
    async with open_channel(scheduler_address) as channel:
        scheduler = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        waits = Waits(config.admit_answer_s, config.resume_s, config.max_request_s)
        chat = ChatEndpoint(
            admission=Admission(scheduler, engines, waits),
            bodies=Bodies(config.max_body_mib * MIB, config.max_bodies_mib * MIB, config.body_s),
            door=Door(config.max_open_requests),
            tiers=TierRule(TIERS[config.default_tier], TIERS[config.open_tier_ceiling]),
            patience=Patience(config.keepalive_s, config.write_stall_s),
        )
        try:
            yield Access(routes(chat, Catalog(scheduler)), write_log=config.access_log)
        finally:
            await engines.close()


def routes(chat: ASGIApp, catalog: Catalog) -> FastAPI:
    """All routes, with every error in one envelope."""
    app = FastAPI(title="Cohabit", version=_VERSION, redoc_url=None, redirect_slashes=False)
    app.router.routes.append(_RawRoute(openapi.CHAT_PATH, chat, methods=["POST"]))
    _add_models(app, catalog)
    _add_probes(app, catalog)
    app.add_exception_handler(Fault, errors.on_fault)
    app.add_exception_handler(HTTPException, _NoRoute(app))
    app.add_exception_handler(Exception, errors.on_bug)
    app.openapi = _Documented(app)  # type: ignore[method-assign]
    return app


class _RawRoute(Route):
    """A route to an ASGI application that, as FastAPI's own do, tells the access layer its path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Starlette has it, and the route in the scope."""
        match, child = super().matches(scope)
        if match is not Match.NONE:
            child["route"] = self
        return match, child


def _add_models(app: FastAPI, catalog: Catalog) -> None:
    @app.get("/v1/models", tags=["models"], responses=openapi.answer(ModelList, "All models."))
    async def list_models() -> Response:
        return _json(await catalog.models())

    @app.get(
        "/v1/models/{name:path}", tags=["models"], responses=openapi.answer(ModelObject, "It.")
    )
    async def get_model(name: str) -> Response:
        return _json(await catalog.model(name))


def _add_probes(app: FastAPI, catalog: Catalog) -> None:
    @app.get("/health", tags=["probes"], responses=openapi.answer(Health, "Alive."))
    async def health() -> Response:
        return _json(await catalog.health())

    @app.get("/readyz", tags=["probes"], responses=openapi.answer(Health, "Requests are served."))
    async def readyz() -> Response:
        await catalog.ready()
        return _json(Health("ok"))

    @app.get("/metrics", tags=["probes"])
    async def metrics() -> Response:
        return Response(generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})


def _json(value: Any) -> Response:
    return Response(_encode(value), media_type="application/json")


class _Documented:
    """What FastAPI knows of its routes, completed once, on first use."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._document: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self._document is None:
            known = get_openapi(title="Cohabit", version=_VERSION, routes=self._app.routes)
            self._document = openapi.complete(known)
        return self._document


class _NoRoute:
    """Exception handler for what the router refuses: no such path, or not with this method."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, request: Request, error: Exception) -> Response:
        """The refusal, naming what there is."""
        method, path = request.method, request.url.path[:200]
        if isinstance(error, HTTPException) and error.status_code == 405:
            allowed = (error.headers or {}).get("allow") or (error.headers or {}).get("Allow", "")
            message = f"{path} does not take {method}; it takes {allowed}."
            answer = errors.response(Fault(Reason.METHOD_NOT_ALLOWED, message))
            answer.headers["allow"] = allowed
            return answer
        known = ", ".join(str(path) for path in self._paths())
        message = f"There is no {method} {path} here; there are {known}."
        return errors.response(Fault(Reason.ROUTE_NOT_FOUND, message))

    def _paths(self) -> list[str]:
        shown = (openapi.CHAT_PATH, *self._app.openapi()["paths"], "/openapi.json", "/docs")
        return list(dict.fromkeys(shown))
