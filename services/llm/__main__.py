"""Wiring of the language model service: config → host → server."""

import asyncio

from chassis.main import Context, run_service
from chassis.server import Server, run, service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.host import ModelHost
from hosting.house_device import HouseDevice
from hosting.leases import LeaseBook
from hosting.values import EngineHome
from services.llm.clients import Scheduler
from services.llm.config import LlmConfig
from services.llm.counting import Counter
from services.llm.model_servicer import LanguageModels
from services.llm.servicer import LanguageModelServicer
from services.llm.swapping import Swapping
from services.llm.vector_catalog import source_of

_DEVICE_S = 2.0
"""How long the first descriptions wait for the broker to say what there is to place models on."""


async def start(context: Context[LlmConfig]) -> None:
    """Serve ModelService and LanguageModelService until told to stop."""
    house, own = context.house, context.own
    home = EngineHome(
        service="llm",
        module="services.llm.engine_main",
        run_dir=house.run_dir,
        log_level=house.log_level,
        ports=own.engine_ports,
        host=own.engine_host,
        load_timeout_s=own.load_timeout_s,
    )
    home.sweep()
    leases = LeaseBook(house.address_of("broker"), "llm")
    device = HouseDevice(house.address_of("broker"))
    asking = asyncio.create_task(device.follow())
    await device.known(_DEVICE_S)
    files = [
        source_of(key, model, house.models_dir, lambda: device.present)
        for key, model in own.models.items()
    ]
    host = ModelHost(home, files, leases)
    scheduler, counter = Scheduler(house.address_of("scheduler")), Counter(home)
    swap_dir = house.models_dir / own.swap_dir if own.swap_dir is not None else None
    swapping = Swapping(host, scheduler, swap_dir)
    names = (
        service_name(models_pb2, "ModelService"),
        service_name(llm_pb2, "LanguageModelService"),
    )
    server = Server(names, drain_s=2.0)
    server.leaving.append(host.events.close)
    for closing in (leases.close, scheduler.close, counter.close, host.close, swapping.close):
        server.closing.push_async_callback(closing)
    server.closing.callback(asking.cancel)
    models = LanguageModels(host, swapping)
    models_pb2_grpc.add_ModelServiceServicer_to_server(models, server.grpc)
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        LanguageModelServicer(host, scheduler, counter), server.grpc
    )
    tidying = asyncio.create_task(leases.release_leftovers(host.lease_ids))
    server.closing.callback(tidying.cancel)
    following = asyncio.create_task(host.follow())
    server.closing.callback(following.cancel)
    await run(server, house.listen_of("llm"))


if __name__ == "__main__":
    run_service("llm", LlmConfig, start)
