"""Wiring of the diffusion service: config → host → server."""

from chassis.main import Context, run_service
from chassis.server import run, service_name
from cohabit.diffusion.v1 import diffusion_pb2, diffusion_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.listing import Listing
from hosting.premises import Premises
from hosting.servicer import ModelServicer
from hosting.values import Source
from services.diffusion.catalog import PictureModel
from services.diffusion.clients import Scheduler
from services.diffusion.config import DiffusionConfig
from services.diffusion.servicer import DiffusionServicer

NAMES = (
    service_name(models_pb2, "ModelService"),
    service_name(diffusion_pb2, "DiffusionService"),
)


async def start(context: Context[DiffusionConfig]) -> None:
    """Serve ModelService and DiffusionService until told to stop."""
    house, own = context.house, context.own
    premises = Premises.of("diffusion", context)

    def sources(section: DiffusionConfig) -> dict[str, Source]:
        return {
            key: PictureModel(key, section, house.models_dir, premises.present)
            for key in section.models
        }

    host = await premises.host(Listing("diffusion", own, sources), context.following)
    scheduler = Scheduler(house.address_of("scheduler"))
    lora_dir = house.models_dir / own.lora_dir if own.lora_dir is not None else None
    server = premises.server(NAMES, host, (scheduler.close,))
    models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
    diffusion_pb2_grpc.add_DiffusionServiceServicer_to_server(
        DiffusionServicer(host, scheduler, lora_dir, premises.present), server.grpc
    )
    await run(server, house.listen_of("diffusion"))


if __name__ == "__main__":
    run_service("diffusion", DiffusionConfig, start)
