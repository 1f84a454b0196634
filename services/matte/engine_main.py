"""An engine process of the matting service: one network, served under permits."""

import asyncio

from chassis import log
from chassis.server import service_name
from cohabit.matte.v1 import matte_pb2, matte_pb2_grpc
from cohabit.models.v1 import models_pb2
from hosting.engine_side import EngineProcess, run_engine
from services.matte.allocation import keep_freed
from services.matte.engine import EngineSpec, spec_of
from services.matte.engine_servicer import EngineServicer
from services.matte.networks.network import Network
from services.matte.pipeline import Pipeline, Stage
from services.matte.resting import Rest


async def load(process: EngineProcess) -> models_pb2.EngineReady:
    """Load the network on a thread, try it, and serve it. Raises Fault MODEL_FAILED."""
    spec, rest = spec_of(process.birth.engine), Rest()
    process.usage = rest.usage
    servicer = EngineServicer(process, spec.encoding)
    matte_pb2_grpc.add_MatteServiceServicer_to_server(servicer, process.server.grpc)
    await process.server.start(process.birth.address)
    network = await asyncio.to_thread(_ready, spec)
    await asyncio.to_thread(rest.loaded)
    pipeline = Pipeline(network, spec.places, spec.bounds, _told)
    servicer.serve(pipeline, spec.device if network.device == "card" else "cpu")
    watching = asyncio.create_task(rest.watch(lambda: pipeline.running))
    for closing in (network.close, pipeline.close, watching.cancel):  # the last one first
        process.server.closing.callback(closing)
    log.get().info("model loaded", device=network.device, threads=spec.threads)
    return models_pb2.EngineReady(
        places=spec.places,
        capabilities=models_pb2.Capabilities(input_modalities=["image"]),
        placement=_placement(spec, network),
    )


def _ready(spec: EngineSpec) -> Network:
    """A network that has run, and a solver that is compiled. Blocks."""
    from services.matte.networks.opening import open_network  # noqa: PLC0415 - heavy, and only here
    from services.matte.solving import warm_up  # noqa: PLC0415

    network = open_network(spec)
    if not network.solves:
        warm_up()
    return network


def _placement(spec: EngineSpec, network: Network) -> models_pb2.Placement:
    on_card = network.device == "card"
    degraded = spec.on_card and not on_card
    fallen = "It was meant for the card, but its library finds none, so it computes on the CPU."
    return models_pb2.Placement(
        kind="gpu" if on_card else "cpu",
        device_name=spec.device if on_card else "",
        degraded=degraded,
        why=fallen if degraded else spec.placement_why,
    )


def _told(number: int, stage: Stage, begins: bool) -> None:
    log.get().debug("stage", number=number, stage=stage.value, begins=begins)


if __name__ == "__main__":
    keep_freed()
    run_engine((service_name(matte_pb2, "MatteService"),), load)
