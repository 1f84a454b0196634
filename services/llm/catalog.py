"""The configured models as hosting wants to know them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from chassis import log
from chassis.errors import Fault
from hosting.values import Kind, ModelSpec
from services.llm import gguf_meta
from services.llm.config import ModelConfig
from services.llm.engine import EngineSpec


def model_spec(key: str, config: ModelConfig, models_dir: Path) -> ModelSpec:
    """Describe a model from its configuration and its file's header.

    A file that is missing or broken is no reason not to start: its load says what is wrong.
    """
    spec = config.spec(models_dir)
    context_tokens, resident_mib, created_ms = config.context_tokens, 1, 0
    try:
        meta = gguf_meta.read(spec.path)
        context_tokens = context_tokens or meta.trained_context_tokens
        resident_mib = gguf_meta.estimate_resident_mib(spec.path, spec)
        created_ms = spec.path.stat().st_mtime_ns // 1_000_000
    except Fault as fault:
        log.get().warning("model file", model=key, problem=fault.message)
    return ModelSpec(
        key=key,
        kind=Kind.LANGUAGE,
        lane=config.lane,
        resident_mib=config.resident_mib or resident_mib,
        places=spec.places,
        context_tokens=context_tokens,
        owner=config.owner,
        created_unix_ms=created_ms,
        engine=_json(spec),
    )


def _json(spec: EngineSpec) -> dict[str, Any]:
    return asdict(spec) | {"path": str(spec.path)}
