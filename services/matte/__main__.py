"""Wiring of the matting service: config → host → server."""

from chassis.main import Context, run_service
from chassis.server import run, service_name
from cohabit.matte.v1 import matte_pb2, matte_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.listing import Listing
from hosting.premises import Premises
from hosting.servicer import ModelServicer
from hosting.values import Source
from imaging.values import Bounds
from services.matte.catalog import Ground, NetworkFile
from services.matte.clients import Scheduler
from services.matte.compiled import keep_compiled
from services.matte.config import MatteConfig
from services.matte.host_work import HostWork
from services.matte.servicer import Defaults, MatteServicer

NAMES = (service_name(models_pb2, "ModelService"), service_name(matte_pb2, "MatteService"))


async def start(context: Context[MatteConfig]) -> None:
    """Serve ModelService and MatteService until told to stop."""
    house, own = context.house, context.own
    keep_compiled(house.state_dir)
    premises = Premises.of("matte", context)
    ground = Ground(house.models_dir, own.max_px, own.encoding, premises.present)

    def sources(section: MatteConfig) -> dict[str, Source]:
        return {key: NetworkFile(key, model, ground) for key, model in section.models.items()}

    listing = Listing("matte", own, sources)
    host = await premises.host(listing, context.following)
    scheduler = Scheduler(house.address_of("scheduler"))
    work = HostWork(own.host_places, Bounds(max_px=own.max_px))
    server = premises.server(NAMES, host, (scheduler.close,))
    server.closing.callback(work.close)
    models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
    defaults = Defaults(own.encoding, lambda: listing.section.default)
    servicer = MatteServicer(host, scheduler, work, defaults)
    matte_pb2_grpc.add_MatteServiceServicer_to_server(servicer, server.grpc)
    await run(server, house.listen_of("matte"))


if __name__ == "__main__":
    run_service("matte", MatteConfig, start)
