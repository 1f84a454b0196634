"""The routes of the edge and what they are wired to."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Scope

from chassis.admission import Admission
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.place import Waits
from cohabit.broker.v1 import broker_pb2_grpc
from cohabit.llm.v1 import llm_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2_grpc
from edge import (
    chat,
    completions,
    embeddings,
    errors,
    legacy,
    openapi,
    rerank,
    speech,
    tokenize,
)
from edge.access import Access
from edge.admin import AdminRoutes
from edge.admin_calls import AdminCalls, services_of
from edge.answering import AnswerEndpoint, Answering
from edge.anthropic import messages
from edge.anthropic import models as anthropic_models
from edge.anthropic.count import CountEndpoint
from edge.anthropic.words import ANTHROPIC
from edge.body import MIB, Bodies
from edge.catalog import Catalog, Health, ModelList, ModelObject
from edge.config import EdgeConfig
from edge.cutouts.wiring import open_cutouts
from edge.described_more import RUNS_PATH
from edge.described_text import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    COUNT_PATH,
    MESSAGES_PATH,
    RESPONSES_PATH,
)
from edge.docs import DOCS_PATH, OPENAPI_PATH, add_docs
from edge.documenting import PAGED, SPOKEN, answers
from edge.entrance import Door, Entrance
from edge.house import House
from edge.house_views import HouseStatus
from edge.jobs.wiring import Jobs, open_jobs
from edge.measure import Measure
from edge.pictures.fetch import Fetch, rules_of
from edge.pictures.wiring import Pictures, open_pictures
from edge.responses.endpoint import ResponsesEndpoint
from edge.responses.in_flight import InFlight
from edge.responses.routes import Responses, add_responses
from edge.responses.store import ResponseStore
from edge.roster import Roster
from edge.simulated import SERVICE, RunsEndpoint
from edge.single import Parse, SingleEndpoint
from edge.sse import Patience
from edge.tier import TIERS, TierRule
from edge.tokenize import TokensEndpoint

_VERSION = "0.1.0"
_encode = msgspec.json.Encoder().encode


@asynccontextmanager
async def open_app(
    config: EdgeConfig,
    scheduler_address: str,
    model_services: Mapping[str, str],
    broker_address: str,
    jobs_address: str = "",
) -> AsyncIterator[ASGIApp]:
    """The edge's ASGI application, connected until the block ends.

    `model_services`: the gRPC targets of those there are, by name; `jobs_address`: that of the job
    service, empty where there is none.
    """
    async with AsyncExitStack() as stack:
        scheduler = scheduler_pb2_grpc.SchedulerServiceStub(
            await stack.enter_async_context(open_channel(scheduler_address))
        )
        broker = broker_pb2_grpc.BrokerServiceStub(
            await stack.enter_async_context(open_channel(broker_address))
        )
        catalog, measure = Catalog(scheduler), Measure(model_services)
        answerers = Channels(config.max_idle_engines, llm_pb2_grpc.LanguageModelServiceStub)
        runners = Channels(config.max_idle_engines, simulated_pb2_grpc.SimulatedServiceStub)
        for closing in (measure.close, answerers.close, runners.close):
            stack.push_async_callback(closing)
        waits = Waits(config.admit_answer_s, config.resume_s, config.max_request_s)
        entrance, roster = entrance_of(config), Roster(catalog.listed)
        answering = Answering(
            admission=Admission(scheduler, answerers, waits),
            entrance=entrance,
            roster=roster,
            measure=measure,
            patience=Patience(config.keepalive_s, config.write_stall_s),
        )
        runs = RunsEndpoint(Admission(scheduler, runners, waits), entrance, roster)
        responses = Responses(_store_of(config), InFlight())
        raw: dict[str, ASGIApp] = {
            CHAT_PATH: AnswerEndpoint(answering, chat.ask),
            COMPLETIONS_PATH: AnswerEndpoint(answering, completions.ask),
            RESPONSES_PATH: ResponsesEndpoint(answering, responses.store, responses.in_flight),
            MESSAGES_PATH: AnswerEndpoint(answering, messages.ask),
            COUNT_PATH: CountEndpoint(entrance, roster, catalog, measure),
            **legacy.endpoints(config.legacy_models, answering),
        }
        if SERVICE in model_services:
            raw[RUNS_PATH] = runs
        hosts = services_of(model_services)
        stack.push_async_callback(hosts.close)
        calls = AdminCalls(catalog, model_services, hosts, config.max_request_s)
        single = partial(
            SingleEndpoint, answering.admission, entrance, roster, config.write_stall_s
        )
        raw |= {path: single(parse) for path, parse in _single_answers(config).items()}
        services = Channels(len(model_services), llm_pb2_grpc.LanguageModelServiceStub)
        stack.push_async_callback(services.close)
        tokens = partial(TokensEndpoint, entrance, catalog.listed, model_services, services)
        raw[tokenize.PATH] = tokens(tokenize.tokenize)
        raw[tokenize.BACK_PATH] = tokens(tokenize.detokenize)
        fetch = Fetch(rules_of(config))
        stack.push_async_callback(fetch.close)
        pictures = await stack.enter_async_context(
            open_pictures(config, scheduler, model_services, entrance, catalog, roster, fetch)
        )
        cutouts = await stack.enter_async_context(
            open_cutouts(config, scheduler, model_services, entrance, catalog, roster, fetch)
        )
        jobs = await stack.enter_async_context(
            open_jobs(config, jobs_address, entrance, catalog, fetch)
        )
        raw |= {**pictures.endpoints, **cutouts, **jobs.endpoints}
        house = House(catalog, broker, tuple(model_services), _VERSION, jobs.ready)
        admin = AdminRoutes(house, calls, entrance.bodies)
        app = routes(raw, catalog, responses, house, admin, pictures, jobs)
        yield Access(app, write_log=config.access_log)


def _single_answers(config: EdgeConfig) -> dict[str, Parse]:
    """By path: the dialects of requests that an engine answers once."""
    parsers: dict[str, Parse] = {embeddings.PATH: embeddings.ask}
    parsers |= dict.fromkeys(rerank.PATHS, rerank.ask)
    if (model := config.default_embedding_model) is not None:
        parsers[embeddings.FEATURES_PATH] = embeddings.feature_extraction(model)
    return parsers


def entrance_of(config: EdgeConfig) -> Entrance:
    """The way in to all models."""
    return Entrance(
        door=Door(config.max_open_requests),
        bodies=Bodies(config.max_body_mib * MIB, config.max_bodies_mib * MIB, config.body_s),
        tiers=TierRule(TIERS[config.default_tier], TIERS[config.open_tier_ceiling]),
    )


def _store_of(config: EdgeConfig) -> ResponseStore:
    return ResponseStore(
        config.stored_responses,
        config.stored_responses_mib * MIB,
        config.stored_response_ttl_s,
        time.monotonic,
    )


def routes(
    raw: Mapping[str, ASGIApp],
    catalog: Catalog,
    responses: Responses,
    house: House,
    admin: AdminRoutes,
    pictures: Pictures,
    jobs: Jobs,
) -> FastAPI:
    """All routes, with every error in the envelope of its dialect; `raw` are those to models."""
    app = FastAPI(
        openapi_url=OPENAPI_PATH,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_own_name,
    )
    for path, endpoint in raw.items():
        app.router.routes.append(_RawRoute(path, endpoint, methods=["POST"]))
    add_responses(app, responses)
    pictures.add_to(app)
    jobs.add_to(app)
    _add_models(app, catalog)
    _add_probes(app, catalog)
    _add_status(app, house)
    admin.add_to(app)
    _add_welcome(app)
    add_docs(app)
    app.add_exception_handler(Fault, errors.on_fault)
    app.add_exception_handler(HTTPException, _NoRoute(app))
    app.add_exception_handler(Exception, errors.on_bug)
    app.openapi = _Documented(app, tuple(raw))  # type: ignore[method-assign]
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
            return _json(await catalog.models())
        wish = anthropic_models.page_wish(request.query_params)
        return _json(anthropic_models.page(await catalog.named(), wish))

    @app.get(
        "/v1/models/{name:path}",
        tags=["models"],
        summary="Look at one model",
        openapi_extra=SPOKEN,
        responses=answers((ModelObject, anthropic_models.ModelInfo), "The model.", 404, 503),
    )
    async def get_model(name: str) -> Response:
        if speech.current.get() is not ANTHROPIC:
            return _json(await catalog.model(name))
        return _json(anthropic_models.info(name, await catalog.behind(name)))


def _add_probes(app: FastAPI, catalog: Catalog) -> None:
    @app.get(
        "/health",
        tags=["probes"],
        summary="Ask whether the edge is alive",
        responses=answers(Health, "Alive; `reason` says what is amiss elsewhere."),
    )
    async def health() -> Response:
        return _json(await catalog.health())

    @app.get(
        "/readyz",
        tags=["probes"],
        summary="Ask whether requests are served",
        responses=answers(Health, "Requests are served.", 503),
    )
    async def readyz() -> Response:
        await catalog.ready()
        return _json(Health("ok"))

    @app.get(
        "/metrics",
        tags=["probes"],
        summary="Read the metrics",
        response_class=PlainTextResponse,
        response_description="In Prometheus' text format.",
    )
    async def metrics() -> Response:
        return Response(generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})


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
    welcome = openapi.Welcome(version=_VERSION, docs=DOCS_PATH, openapi=OPENAPI_PATH)

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

    def __init__(self, app: FastAPI, raw: tuple[str, ...]) -> None:
        self._app = app
        self._raw = raw
        self._document: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self._document is None:
            known = get_openapi(
                title="Cohabit",
                version=_VERSION,
                description=openapi.DESCRIPTION,
                routes=self._app.routes,
                tags=openapi.tags(self._raw),
            )
            self._document = openapi.complete(known, self._raw)
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
