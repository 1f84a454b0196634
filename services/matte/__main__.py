"""Wiring of the matting service: config → host → server."""

import asyncio

from chassis.main import Context, run_service
from chassis.server import Server, run, service_name
from cohabit.matte.v1 import matte_pb2, matte_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.host import ModelHost
from hosting.house_device import HouseDevice
from hosting.leases import LeaseBook
from hosting.servicer import ModelServicer
from hosting.values import EngineHome
from imaging.values import Bounds
from services.matte.catalog import Ground, NetworkFile
from services.matte.clients import Scheduler
from services.matte.compiled import keep_compiled
from services.matte.config import MatteConfig
from services.matte.host_work import HostWork
from services.matte.servicer import Defaults, MatteServicer

NAMES = (service_name(models_pb2, "ModelService"), service_name(matte_pb2, "MatteService"))

_DEVICE_S = 2.0
"""How long the first descriptions wait for the broker to say what there is to place models on."""


async def start(context: Context[MatteConfig]) -> None:
    """Serve ModelService and MatteService until told to stop."""
    house, own = context.house, context.own
    keep_compiled(house.state_dir)
    home = EngineHome(
        service="matte",
        module="services.matte.engine_main",
        run_dir=house.run_dir,
        log_level=house.log_level,
        ports=own.engine_ports,
        host=own.engine_host,
        load_timeout_s=own.load_timeout_s,
    )
    home.sweep()
    leases = LeaseBook(house.address_of("broker"), "matte")
    device = HouseDevice(house.address_of("broker"))
    asking = asyncio.create_task(device.follow())
    await device.known(_DEVICE_S)
    ground = Ground(house.models_dir, own.max_px, own.encoding, lambda: device.present)
    files = {key: NetworkFile(key, model, ground) for key, model in own.models.items()}
    host = ModelHost(home, files.values(), leases)
    scheduler = Scheduler(house.address_of("scheduler"))
    work = HostWork(own.host_places, Bounds(max_px=own.max_px))
    server = Server(NAMES, drain_s=2.0)
    server.leaving.append(host.events.close)
    for closing in (leases.close, scheduler.close, host.close):
        server.closing.push_async_callback(closing)
    server.closing.callback(work.close)
    server.closing.callback(asking.cancel)
    models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
    servicer = MatteServicer(host, files, scheduler, work, Defaults(own.encoding, own.default))
    matte_pb2_grpc.add_MatteServiceServicer_to_server(servicer, server.grpc)
    tidying = asyncio.create_task(leases.release_leftovers(host.lease_ids))
    server.closing.callback(tidying.cancel)
    following = asyncio.create_task(host.follow())
    server.closing.callback(following.cancel)
    await run(server, house.listen_of("matte"))


if __name__ == "__main__":
    run_service("matte", MatteConfig, start)
