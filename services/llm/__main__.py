"""Wiring of the language model service: config → host → server."""

from chassis.main import Context, run_service
from chassis.server import run, service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from hosting.listing import Listing
from hosting.premises import Premises
from hosting.values import Source
from services.llm.clients import Scheduler
from services.llm.config import LlmConfig
from services.llm.counting import Counter
from services.llm.model_servicer import LanguageModels
from services.llm.servicer import LanguageModelServicer
from services.llm.swapping import Swapping
from services.llm.vector_catalog import source_of

NAMES = (
    service_name(models_pb2, "ModelService"),
    service_name(llm_pb2, "LanguageModelService"),
)


async def start(context: Context[LlmConfig]) -> None:
    """Serve ModelService and LanguageModelService until told to stop."""
    house, own = context.house, context.own
    premises = Premises.of("llm", context)

    def sources(section: LlmConfig) -> dict[str, Source]:
        return {
            key: source_of(key, model, house.models_dir, premises.present)
            for key, model in section.models.items()
        }

    host = await premises.host(Listing("llm", own, sources), context.following)
    scheduler, counter = Scheduler(house.address_of("scheduler")), Counter(premises.home)
    swap_dir = house.models_dir / own.swap_dir if own.swap_dir is not None else None
    swapping = Swapping(host, scheduler, swap_dir)
    server = premises.server(NAMES, host, (scheduler.close, counter.close))
    server.closing.push_async_callback(swapping.close)  # before the models it would load
    models_pb2_grpc.add_ModelServiceServicer_to_server(LanguageModels(host, swapping), server.grpc)
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        LanguageModelServicer(host, scheduler, counter), server.grpc
    )
    await run(server, house.listen_of("llm"))


if __name__ == "__main__":
    run_service("llm", LlmConfig, start)
