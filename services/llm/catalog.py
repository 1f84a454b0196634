"""The configured models as hosting wants to know them, described by their files' headers."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from chassis import log
from chassis.errors import Fault
from hosting.values import Kind, ModelSpec
from services.llm import gguf_meta
from services.llm.config import ModelConfig
from services.llm.engine import EngineSpec

Stamp = tuple[tuple[int, int, int] | None, ...]


class ModelFile:
    """`hosting.values.Source` of one configured model."""

    def __init__(self, key: str, config: ModelConfig, models_dir: Path) -> None:
        self._key, self._config = key, config
        self._spec = config.spec(models_dir)

    def stamp(self) -> Stamp:
        """Which files these are, each by what changes with its contents; None: not there."""
        return tuple(map(_stamp, gguf_meta.parts(self._spec.path)))

    def describe(self) -> ModelSpec:
        """A file that is missing or broken is no reason not to start: `problem` says what it is."""
        config, spec = self._config, self._spec
        # One that cannot be loaded is leased for by next to nothing: nobody is evicted for it.
        context_tokens, resident_mib, created_ms, problem = config.context_tokens, 1, 0, ""
        try:
            meta = gguf_meta.read(spec.path)
            context_tokens = context_tokens or meta.trained_context_tokens
            resident_mib = config.resident_mib or gguf_meta.estimate_resident_mib(meta, spec)
            created_ms = (_stamp(spec.path) or (0,))[0] // 1_000_000
        except Fault as fault:
            problem = fault.message
            log.get().warning("model file", model=self._key, problem=problem)
        return ModelSpec(
            key=self._key,
            kind=Kind.LANGUAGE,
            lane=config.lane,
            resident_mib=resident_mib,
            places=spec.places,
            max_instances=config.max_instances,
            context_tokens=context_tokens,
            owner=config.owner,
            created_unix_ms=created_ms,
            engine=_json(spec),
            problem=problem,
        )


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _json(spec: EngineSpec) -> dict[str, Any]:
    return asdict(spec) | {"path": str(spec.path)}
