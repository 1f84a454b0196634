"""An engine process of the language model service: one GGUF, served under permits."""

import asyncio
from pathlib import Path
from typing import Any

from chassis.server import service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from hosting.engine_side import EngineProcess, run_engine
from services.llm.engine import EngineSpec
from services.llm.engine_servicer import EngineServicer


async def load(process: EngineProcess) -> models_pb2.EngineReady:
    """Load the model on a thread and serve it. Raises Fault MODEL_FAILED."""
    from services.llm.engine_llama import LlamaEngine  # noqa: PLC0415 - heavy, and only here

    engine = LlamaEngine(_spec(dict(process.birth.engine)))
    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        EngineServicer(process, engine), process.server.grpc
    )
    loop = asyncio.get_running_loop()

    def progress(share: float) -> None:
        loop.call_soon_threadsafe(process.report_progress, share)

    await process.server.start(process.birth.address)
    await asyncio.to_thread(engine.load, progress)
    process.server.closing.callback(engine.close)
    facts = engine.facts
    return models_pb2.EngineReady(
        places=facts.places,
        capabilities=models_pb2.Capabilities(
            context_tokens=facts.context_tokens, input_modalities=["text"]
        ),
    )


def _spec(values: dict[str, Any]) -> EngineSpec:
    return EngineSpec(**(values | {"path": Path(values["path"])}))


if __name__ == "__main__":
    run_engine((service_name(llm_pb2, "LanguageModelService"),), load)
