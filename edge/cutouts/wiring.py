"""The route that cuts out at once, wired to the engines of the matting service."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from chassis.admission import Admission
from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.place import Waits
from cohabit.matte.v1 import matte_pb2_grpc
from cohabit.models.v1 import models_pb2
from edge.body import MIB
from edge.catalog import Catalog
from edge.choice import Choice
from edge.config import EdgeConfig
from edge.cutouts.endpoint import PATH, RemovalEndpoint
from edge.cutouts.service import SERVICE, MatteService
from edge.entrance import Entrance
from edge.pictures.fetch import Fetch
from edge.roster import Roster

if TYPE_CHECKING:
    from cohabit.scheduler.v1 import scheduler_pb2_grpc


def matte_choice(config: EdgeConfig, catalog: Catalog) -> Choice:
    """Of matting networks."""
    kind = models_pb2.MODEL_KIND_MATTE
    return Choice(kind, SERVICE, config.default_matte_model, catalog)


@asynccontextmanager
async def open_cutouts(
    config: EdgeConfig,
    scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub",
    model_services: Mapping[str, str],
    entrance: Entrance,
    catalog: Catalog,
    roster: Roster,
    fetch: Fetch,
) -> AsyncIterator[dict[str, ASGIApp]]:
    """By path; connected until the block ends. None without a service for matting networks."""
    if SERVICE not in model_services:
        yield {}
        return
    engines = Channels(config.max_idle_engines, matte_pb2_grpc.MatteServiceStub)
    waits = Waits(config.admit_answer_s, config.resume_s, config.max_request_s)
    async with open_channel(model_services[SERVICE]) as channel:
        endpoint = RemovalEndpoint(
            admission=Admission(scheduler, engines, waits),
            entrance=entrance,
            roster=roster,
            choice=matte_choice(config, catalog),
            service=MatteService(matte_pb2_grpc.MatteServiceStub(channel)),
            fetch=fetch,
            max_body_bytes=config.max_picture_body_mib * MIB,
            stall_s=config.write_stall_s,
        )
        try:
            yield {PATH: endpoint}
        finally:
            await engines.close()
