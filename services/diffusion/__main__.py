"""Wiring of the diffusion service: config → host → server."""

import asyncio

from chassis.main import Context, run_service
from chassis.server import Server, run, service_name
from cohabit.diffusion.v1 import diffusion_pb2, diffusion_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.host import ModelHost
from hosting.house_device import HouseDevice
from hosting.leases import LeaseBook
from hosting.servicer import ModelServicer
from hosting.values import EngineHome
from services.diffusion.catalog import PictureModel
from services.diffusion.clients import Scheduler
from services.diffusion.config import DiffusionConfig
from services.diffusion.servicer import DiffusionServicer

NAMES = (
    service_name(models_pb2, "ModelService"),
    service_name(diffusion_pb2, "DiffusionService"),
)
_DEVICE_S = 2.0
"""How long the first descriptions wait for the broker to say what there is to place models on."""


async def start(context: Context[DiffusionConfig]) -> None:
    """Serve ModelService and DiffusionService until told to stop."""
    house, own = context.house, context.own
    home = EngineHome(
        service="diffusion",
        module="services.diffusion.engine_main",
        run_dir=house.run_dir,
        log_level=house.log_level,
        ports=own.engine_ports,
        host=own.engine_host,
        load_timeout_s=own.load_timeout_s,
    )
    home.sweep()
    leases = LeaseBook(house.address_of("broker"), "diffusion")
    device = HouseDevice(house.address_of("broker"))
    asking = asyncio.create_task(device.follow())
    await device.known(_DEVICE_S)
    models = [
        PictureModel(key, own, house.models_dir, lambda: device.present) for key in own.models
    ]
    host = ModelHost(home, models, leases)
    scheduler = Scheduler(house.address_of("scheduler"))
    lora_dir = house.models_dir / own.lora_dir if own.lora_dir is not None else None
    server = Server(NAMES, drain_s=2.0)
    server.leaving.append(host.events.close)
    for closing in (leases.close, scheduler.close, host.close):
        server.closing.push_async_callback(closing)
    server.closing.callback(asking.cancel)
    models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
    diffusion_pb2_grpc.add_DiffusionServiceServicer_to_server(
        DiffusionServicer(host, scheduler, lora_dir, lambda: device.present), server.grpc
    )
    tidying = asyncio.create_task(leases.release_leftovers(host.lease_ids))
    server.closing.callback(tidying.cancel)
    following = asyncio.create_task(host.follow())
    server.closing.callback(following.cancel)
    await run(server, house.listen_of("diffusion"))


if __name__ == "__main__":
    run_service("diffusion", DiffusionConfig, start)
