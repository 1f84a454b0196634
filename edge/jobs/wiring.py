"""The routes of jobs, wired to the job service."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI
from starlette.types import ASGIApp

from chassis.channel import open_channel
from cohabit.jobs.v1 import jobs_pb2_grpc
from cohabit.models.v1 import models_pb2
from edge.body import MIB
from edge.catalog import Catalog
from edge.choice import Choice
from edge.config import EdgeConfig
from edge.cutouts.wiring import matte_choice
from edge.entrance import Entrance
from edge.house import Ready
from edge.jobs import parsing
from edge.jobs.calls import JobCalls
from edge.jobs.described import FOREGROUNDS_PATH, IMAGES_PATH, REMOVALS_PATH
from edge.jobs.endpoint import SubmitEndpoint, Submitting
from edge.jobs.events import Events
from edge.jobs.results import Results
from edge.jobs.routes import JobRoutes
from edge.pictures.fetch import Fetch
from edge.pictures.service import SERVICE
from edge.roster import Roster
from edge.sse import Patience


@dataclass(frozen=True, slots=True)
class Jobs:
    """What there is of them; nothing where the house has no job service."""

    endpoints: Mapping[str, ASGIApp] = field(default_factory=dict)
    """Those that hand jobs in, by path."""
    routes: JobRoutes | None = None
    ready: Ready | None = None
    """Whether the service answers."""

    def add_to(self, app: FastAPI) -> None:
        """The routes that look at jobs."""
        if self.routes is not None:
            self.routes.add_to(app)


@asynccontextmanager
async def open_jobs(
    config: EdgeConfig,
    address: str,
    entrance: Entrance,
    catalog: Catalog,
    roster: Roster,
    fetch: Fetch,
) -> AsyncIterator[Jobs]:
    """The routes, connected until the block ends; none without an address of the job service."""
    if not address:
        yield Jobs()
        return
    patience = Patience(config.keepalive_s, config.write_stall_s)
    async with open_channel(address) as channel:
        stub = jobs_pb2_grpc.JobServiceStub(channel)
        calls = JobCalls(stub, config.resume_s, config.max_request_s)
        routes = JobRoutes(
            calls,
            Events(calls, entrance.door, patience),
            Results(calls, entrance.door, config.write_stall_s),
        )
        endpoints = _endpoints(config, calls, entrance, catalog, roster, fetch)
        yield Jobs(endpoints, routes, calls.ready)


def _endpoints(
    config: EdgeConfig,
    calls: JobCalls,
    entrance: Entrance,
    catalog: Catalog,
    roster: Roster,
    fetch: Fetch,
) -> dict[str, ASGIApp]:
    image = config.default_image_model
    kind = models_pb2.MODEL_KIND_DIFFUSION
    submitting = Submitting(
        calls=calls,
        entrance=entrance,
        roster=roster,
        fetch=fetch,
        makers=Choice(kind, SERVICE, image, catalog),
        backdrops=Choice(kind, SERVICE, config.default_background_model or image, catalog),
        mattes=matte_choice(config, catalog),
        max_body_bytes=config.max_picture_body_mib * MIB,
    )
    return {
        IMAGES_PATH: SubmitEndpoint(submitting, parsing.image_generation),
        FOREGROUNDS_PATH: SubmitEndpoint(submitting, parsing.foreground_generation),
        REMOVALS_PATH: SubmitEndpoint(submitting, parsing.background_removal),
    }
