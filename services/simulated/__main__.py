"""Wiring of the simulated service: config → host → server."""

import asyncio

from chassis.main import Context, run_service
from chassis.server import Server, run, service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2, simulated_pb2_grpc
from hosting.host import ModelHost
from hosting.leases import LeaseBook
from hosting.servicer import ModelServicer
from hosting.values import EngineHome
from services.simulated.catalog import Ground, ProfiledModel
from services.simulated.clients import Scheduler
from services.simulated.config import SimulatedConfig
from services.simulated.servicer import AnswerServicer, Profiles, RunServicer

NAMES = (
    service_name(models_pb2, "ModelService"),
    service_name(simulated_pb2, "SimulatedService"),
    service_name(llm_pb2, "LanguageModelService"),
)


async def start(context: Context[SimulatedConfig]) -> None:
    """Serve ModelService, SimulatedService and LanguageModelService until told to stop."""
    house, own = context.house, context.own
    home = EngineHome(
        service="simulated",
        module="services.simulated.engine_main",
        run_dir=house.run_dir,
        log_level=house.log_level,
        ports=own.engine_ports,
        host=own.engine_host,
        load_timeout_s=own.load_timeout_s,
    )
    home.sweep()
    leases = LeaseBook(house.address_of("broker"), "simulated")
    host = ModelHost(home, _models(context), leases)
    profiles = Profiles({key: model.profile(own.time_scale) for key, model in own.models.items()})
    scheduler = Scheduler(house.address_of("scheduler"))
    server = Server(NAMES, drain_s=2.0)
    server.leaving.append(host.events.close)
    for closing in (leases.close, scheduler.close, host.close):
        server.closing.push_async_callback(closing)
    models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
    simulated_pb2_grpc.add_SimulatedServiceServicer_to_server(
        RunServicer(profiles, scheduler), server.grpc
    )
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        AnswerServicer(profiles, scheduler), server.grpc
    )
    tidying = asyncio.create_task(leases.release_leftovers(host.lease_ids))
    server.closing.callback(tidying.cancel)
    await run(server, house.listen_of("simulated"))


def _models(context: Context[SimulatedConfig]) -> list[ProfiledModel]:
    house, own = context.house, context.own
    ground = Ground(
        run_dir=house.run_dir,
        broker=house.address_of("broker"),
        time_scale=own.time_scale,
        configured_unix_ms=context.document.path.stat().st_mtime_ns // 1_000_000,
    )
    return [ProfiledModel(key, model, ground) for key, model in own.models.items()]


if __name__ == "__main__":
    run_service("simulated", SimulatedConfig, start)
