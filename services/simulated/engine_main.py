"""An engine process of the simulated service: one instance of one model.

It imports little, for many of them start and stop beside each other on one host.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.server import service_name
from chassis.simulated_card import SimulatedCard
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.simulated.v1 import simulated_pb2, simulated_pb2_grpc
from hosting.engine_side import EngineProcess, run_engine
from services.simulated.engine import SimulatedEngine
from services.simulated.engine_servicer import AnswerServicer, RunServicer
from services.simulated.profile import Profile

if TYPE_CHECKING:
    from cohabit.broker.v1.broker_pb2_grpc import BrokerServiceAsyncStub

_BROKER_S = 10.0

NAMES = (
    service_name(simulated_pb2, "SimulatedService"),
    service_name(llm_pb2, "LanguageModelService"),
)


async def load(process: EngineProcess) -> models_pb2.EngineReady:
    """Take up the memory of the profile and serve. Raises Fault."""
    told = process.birth.engine
    profile = Profile(**told["profile"])
    device = await simulated_device(told["broker"])
    engine = SimulatedEngine(profile, SimulatedCard(Path(told["run_dir"]) / f"{device}.card"))
    process.usage = lambda: engine.usage_mib
    simulated_pb2_grpc.add_SimulatedServiceServicer_to_server(
        RunServicer(process, engine), process.server.grpc
    )
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        AnswerServicer(process, engine), process.server.grpc
    )

    def progress(share: float) -> None:
        process.report_progress(share)
        process.report_usage()

    await process.server.start(process.birth.address)
    process.server.closing.push_async_callback(engine.unload)
    await engine.load(progress)
    return models_pb2.EngineReady(
        places=profile.places,
        capabilities=models_pb2.Capabilities(
            context_tokens=profile.context_tokens, input_modalities=["text"]
        ),
    )


async def simulated_device(broker: str) -> str:
    """The name of the simulated device. Raises Fault where the broker lends of any other kind.

    Nobody pretends beside real models: they would be lent memory that nothing fills, and answer
    in the name of models that are not there.
    """
    async with open_channel(broker) as channel:
        stub: BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(channel)
        try:
            answer = await stub.GetDeviceMemory(
                broker_pb2.GetDeviceMemoryRequest(), timeout=_BROKER_S, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "broker") from None
    for device in answer.devices:
        if device.kind != broker_pb2.DEVICE_KIND_SIMULATED:
            raise Fault(
                Reason.MODEL_FAILED,
                f"Simulated models live on a simulated device alone, and '{device.device}' is a "
                "real one; set `device: simulated` and a `capacity_mib` in the `broker` section.",
            )
    return answer.devices[0].device


if __name__ == "__main__":
    run_engine(NAMES, load)
