"""An engine process of the language model service: one GGUF, served under permits."""

import asyncio
import functools
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chassis import log
from chassis.server import service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from hosting.engine_side import EngineProcess, run_engine
from services.llm.engine import Engine, EngineFacts, EngineSpec
from services.llm.engine_servicer import EngineServicer, VectorServicer
from services.llm.vector_catalog import spec_of
from services.llm.vectors import VectorEngine

if TYPE_CHECKING:
    from services.llm.lexicon import Lexicon

_HEALTH_EVERY_S = 0.2
_LAST_FAULTS_S = 0.1
"""Time that requests have to be told."""


async def load(process: EngineProcess) -> models_pb2.EngineReady:
    """Load the model on a thread and serve it. Raises Fault MODEL_FAILED."""
    if "pooling" in process.birth.engine:
        return await _load_vectors(process)
    from services.llm.engine_llama import LlamaEngine  # noqa: PLC0415 - heavy, and only here

    spec = _spec(dict(process.birth.engine))
    engine = LlamaEngine(spec)

    def lexicon() -> "Lexicon":
        return _lexicon(spec.path, engine.facts.context_tokens)

    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        EngineServicer(process, engine, lexicon), process.server.grpc
    )
    await _start(process, engine)
    facts = engine.facts
    _tell(facts)
    return models_pb2.EngineReady(
        places=facts.places,
        capabilities=models_pb2.Capabilities(
            context_tokens=facts.context_tokens, input_modalities=["text"]
        ),
    )


async def _load_vectors(process: EngineProcess) -> models_pb2.EngineReady:
    from services.llm.engine_vectors import LlamaVectors  # noqa: PLC0415 - heavy, and only here
    from services.llm.lexicon import Lexicon  # noqa: PLC0415

    spec = spec_of(process.birth.engine)
    engine = LlamaVectors(spec)

    def lexicon() -> Lexicon:
        return Lexicon(engine.tokenizer, engine.facts.context_tokens, writes=False)

    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        VectorServicer(process, engine, spec.kind, lexicon), process.server.grpc
    )
    await _start(process, engine)
    facts = engine.facts
    log.get().info("model loaded", **asdict(facts))
    return models_pb2.EngineReady(
        places=facts.places,
        capabilities=models_pb2.Capabilities(
            context_tokens=facts.context_tokens, input_modalities=["text"]
        ),
    )


async def _start(process: EngineProcess, engine: "Engine | VectorEngine") -> None:
    """Bind, load, and see to the end."""
    loop = asyncio.get_running_loop()

    def progress(share: float) -> None:
        loop.call_soon_threadsafe(process.report_progress, share)

    await process.server.start(process.birth.address)
    await asyncio.to_thread(engine.load, progress)
    process.server.closing.callback(engine.close)
    watching = asyncio.create_task(_end_with(engine, process))
    process.server.closing.callback(watching.cancel)  # called before the engine is closed


@functools.cache
def _lexicon(path: Path, context_tokens: int) -> "Lexicon":
    """Opened when it is first asked for: few who talk to a model look at its tokens."""
    from services.llm.lexicon import Lexicon  # noqa: PLC0415 - heavy, and only here
    from services.llm.tokenizer import Tokenizer  # noqa: PLC0415

    return Lexicon(Tokenizer.open(path), context_tokens)


def _tell(facts: EngineFacts) -> None:
    log.get().info(
        "model loaded",
        description=facts.description,
        weights_mib=facts.weights_mib,
        kv_cache_mib=facts.kv_cache_mib,
        context_tokens=facts.context_tokens,
    )
    if facts.template_note:
        log.get().warning("chat template", note=facts.template_note)


async def until_broken(engine: "Engine | VectorEngine") -> None:
    """Return once the engine can run nothing any more."""
    while engine.healthy:  # noqa: ASYNC110  the engine's own thread ends it, and cannot wait for us
        await asyncio.sleep(_HEALTH_EVERY_S)


async def _end_with(engine: "Engine | VectorEngine", process: EngineProcess) -> None:
    """End the process when its engine is broken: the parent releases its memory, and loads anew."""
    await until_broken(engine)
    log.get().error("engine broken, ending")
    try:
        async with asyncio.timeout(10 * _LAST_FAULTS_S):
            await process.server.grpc.stop(_LAST_FAULTS_S)
    finally:
        os._exit(1)


def _spec(values: dict[str, Any]) -> EngineSpec:
    return EngineSpec(**(values | {"path": Path(values["path"])}))


if __name__ == "__main__":
    run_engine((service_name(llm_pb2, "LanguageModelService"),), load)
