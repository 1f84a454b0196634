"""An engine process of the language model service: one GGUF, served under permits."""

import asyncio
import os
from collections.abc import Collection
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from chassis import log
from chassis.server import service_name
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from hosting.engine_side import EngineProcess, run_engine
from services.llm import gguf_meta
from services.llm.core.drafting import Tally
from services.llm.engine import DRAFT, Engine, EngineFacts, EngineSpec
from services.llm.engine_servicer import EngineServicer, VectorServicer
from services.llm.placement import Layers, Placed, settle
from services.llm.vector_catalog import spec_of
from services.llm.vectors import VectorEngine

_HEALTH_EVERY_S = 0.2
_LAST_FAULTS_S = 0.1
"""Time that requests have to be told."""


async def load(process: EngineProcess) -> models_pb2.EngineReady:
    """Load the model on a thread and serve it. Raises Fault MODEL_FAILED."""
    if "pooling" in process.birth.engine:
        return await _load_vectors(process)
    return await _load_language(process)


async def _load_language(process: EngineProcess) -> models_pb2.EngineReady:
    from services.llm.engine_llama import LlamaEngine  # noqa: PLC0415 - heavy, and only here
    from services.llm.lexicon import Lexicon  # noqa: PLC0415

    spec = _afforded(_spec(dict(process.birth.engine)), process.birth.extras)
    spec, placed = await asyncio.to_thread(_placed, spec)
    engine = LlamaEngine(spec)
    if spec.speculation != "off":
        process.speculation = partial(_told, engine.tally)

    def lexicon() -> Lexicon:
        return Lexicon(engine.tokenizer, engine.facts.context_tokens)

    llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(
        EngineServicer(process, engine, lexicon), process.server.grpc
    )
    await _start(process, engine)
    process.held = partial(_held, engine)
    facts = engine.facts
    _tell(facts)
    return models_pb2.EngineReady(
        places=facts.places,
        capabilities=models_pb2.Capabilities(
            context_tokens=facts.context_tokens,
            input_modalities=["text"],
            tools=True,
            structured_output=True,
            thinking=facts.thinks,
            infill=facts.infills,
            translation=facts.translates,
        ),
        placement=models_pb2.Placement(
            kind=placed.kind,
            device_name=placed.device_name,
            gpu_layers=placed.gpu_layers,
            layers=placed.layers,
            degraded=placed.degraded,
            profile=spec.profile,
            why=placed.why,
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
            context_tokens=facts.context_tokens,
            input_modalities=["text"],
            embedding_dimensions=facts.dimensions,
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


def _afforded(spec: EngineSpec, extras: Collection[str]) -> EngineSpec:
    """Without its draft model, if that has no memory."""
    if spec.speculation != "draft" or DRAFT in extras:
        return spec
    log.get().warning("no memory for the draft model, loading without it")
    return replace(spec, speculation="off")


def _told(tally: Tally) -> models_pb2.Speculation:
    return models_pb2.Speculation(
        drafted_tokens=tally.drafted_tokens,
        accepted_tokens=tally.accepted_tokens,
        saved_calls=tally.saved_calls,
    )


def _held(engine: Engine) -> dict[str, int]:
    told = engine.holdings()
    return {
        "kv_cells": told.cells,
        "kv_cells_used": told.used_cells,
        "kv_cells_idle": told.idle_cells,
        "parked_sequences": told.parked_prefixes,
        "parked_bytes": told.parked_bytes,
    }


def _placed(spec: EngineSpec) -> tuple[EngineSpec, Placed]:
    """With the layers that go on the card, by what the native library finds, and where that is.
    Raises Fault MODEL_FAILED.
    """
    from services.llm.llama_cards import cards  # noqa: PLC0415 - heavy, and only here

    wanted = Layers(spec.gpu_layers, spec.placement_why)
    layers, found = gguf_meta.read(spec.path).layers, cards()
    placed = settle(wanted, layers, found, allow_cpu_fallback=spec.allow_cpu_fallback)
    if placed.degraded:
        log.get().warning("model degraded", why=placed.why)
    draft_layers = 0
    if spec.speculation == "draft" and spec.draft_path is not None:
        wanted, layers = Layers(spec.draft_gpu_layers, ""), gguf_meta.read(spec.draft_path).layers
        draft = settle(wanted, layers, found, allow_cpu_fallback=spec.allow_cpu_fallback)
        draft_layers = draft.gpu_layers
    spec = replace(spec, gpu_layers=placed.gpu_layers, draft_gpu_layers=draft_layers)
    return spec, placed


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
    paths = {name: Path(values[name]) for name in ("path", "draft_path") if values.get(name)}
    return EngineSpec(**(values | paths))


if __name__ == "__main__":
    run_engine((service_name(llm_pb2, "LanguageModelService"),), load)
