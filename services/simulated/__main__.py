"""Wiring of the simulated service: config → host → server."""

from chassis.main import Context, run_service
from chassis.server import run, service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2, simulated_pb2_grpc
from hosting.listing import Listing
from hosting.premises import Premises
from hosting.servicer import ModelServicer
from hosting.values import Source
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
    premises = Premises.of("simulated", context)
    ground = _ground(context)

    def sources(section: SimulatedConfig) -> dict[str, Source]:
        return {key: ProfiledModel(key, model, ground) for key, model in section.models.items()}

    host = await premises.host(Listing("simulated", own, sources), context.following)
    profiles = Profiles(host)
    scheduler = Scheduler(house.address_of("scheduler"))
    server = premises.server(NAMES, host, (scheduler.close,))
    models_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
    simulated_pb2_grpc.add_SimulatedServiceServicer_to_server(
        RunServicer(profiles, scheduler), server.grpc
    )
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        AnswerServicer(profiles, scheduler), server.grpc
    )
    await run(server, house.listen_of("simulated"))


def _ground(context: Context[SimulatedConfig]) -> Ground:
    house, own = context.house, context.own
    return Ground(
        run_dir=house.run_dir,
        broker=house.address_of("broker"),
        time_scale=own.time_scale,
        configured_unix_ms=context.document.path.stat().st_mtime_ns // 1_000_000,
    )


if __name__ == "__main__":
    run_service("simulated", SimulatedConfig, start)
