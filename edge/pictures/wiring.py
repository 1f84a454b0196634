"""The routes of pictures, wired: there in a house with a service for diffusion models."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from fastapi import FastAPI
from starlette.types import ASGIApp

from chassis.admission import Admission
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.place import Waits
from cohabit.diffusion.v1 import diffusion_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from edge.body import MIB
from edge.catalog import Catalog
from edge.choice import Choice
from edge.config import EdgeConfig
from edge.entrance import Entrance
from edge.pictures import described, request
from edge.pictures.endpoint import PaintEndpoint
from edge.pictures.fetch import Fetch
from edge.pictures.loras import add_loras
from edge.pictures.models import PaintingModels
from edge.pictures.painter import Painter
from edge.pictures.painting import Parse
from edge.pictures.service import SERVICE, DiffusionService
from edge.roster import Roster
from edge.sse import Patience


@dataclass(frozen=True, slots=True)
class Pictures:
    """What there is of them; nothing where the house has no diffusion models."""

    endpoints: Mapping[str, ASGIApp] = field(default_factory=dict)
    """By path, for POST."""
    loras: Callable[[FastAPI], None] | None = None
    """Adds the route that lists them."""

    def add_to(self, app: FastAPI) -> None:
        """The routes that are no POST."""
        if self.loras is not None:
            self.loras(app)


@asynccontextmanager
async def open_pictures(
    config: EdgeConfig,
    scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub",
    model_services: Mapping[str, str],
    entrance: Entrance,
    catalog: Catalog,
    roster: Roster,
    fetch: Fetch,
) -> AsyncIterator[Pictures]:
    """The routes, connected until the block ends; none without a service for diffusion models."""
    if SERVICE not in model_services:
        yield Pictures()
        return
    engines = Channels(config.max_idle_engines, diffusion_pb2_grpc.DiffusionServiceStub)
    waits = Waits(config.admit_answer_s, config.resume_s, config.max_request_s)
    admission = Admission(scheduler, engines, waits)
    usual = config.default_image_model
    async with open_channel(model_services[SERVICE]) as channel:
        service = DiffusionService(diffusion_pb2_grpc.DiffusionServiceStub(channel))

        def endpoint(model: str | None, parse: Parse) -> ASGIApp:
            choice = Choice(models_pb2.MODEL_KIND_DIFFUSION, SERVICE, model, catalog)
            return PaintEndpoint(
                painter=Painter(admission, PaintingModels(choice, roster), service),
                entrance=entrance,
                patience=Patience(config.keepalive_s, config.write_stall_s),
                fetch=fetch,
                max_body_bytes=config.max_picture_body_mib * MIB,
                parse=parse,
            )

        paint = partial(endpoint, usual)
        backdrop = partial(endpoint, config.default_background_model or usual)
        try:
            yield Pictures(
                {
                    described.GENERATIONS_PATH: paint(request.generation),
                    described.EDITS_PATH: paint(request.edit),
                    described.BACKGROUNDS_PATH: backdrop(request.backdrop),
                    described.STYLE_PATH: backdrop(request.backdrop_in_style),
                },
                partial(add_loras, service=service, roster=roster),
            )
        finally:
            await engines.close()
