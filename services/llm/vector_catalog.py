"""Models of kind embedding and reranker as hosting wants to know them: `catalog.py` for these."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chassis import log
from chassis.errors import Fault
from hosting.house_device import HOST
from hosting.values import Kind, ModelSpec, Source
from services.llm import gguf_meta
from services.llm.catalog import ModelFile, Present
from services.llm.config import ModelConfig
from services.llm.engine import ALL_LAYERS, default_threads
from services.llm.gguf_meta import GgufMeta
from services.llm.vectors import Pooling, VectorKind, VectorSpec

DEFAULT_BATCH_TOKENS = 512
_PROCESS_MIB = 128
"""Interpreter and libraries, guessed from above."""
_KINDS = {VectorKind.EMBEDDING: Kind.EMBEDDING, VectorKind.RERANKER: Kind.RERANKER}

Stamp = tuple[tuple[int, int, int] | None, ...]


class VectorFile:
    """`hosting.values.Source` of one configured model."""

    def __init__(self, key: str, config: ModelConfig, models_dir: Path) -> None:
        self._key, self._config = key, config
        self._spec = vector_spec(config, models_dir)

    def stamp(self) -> Stamp:
        """Which files these are, each by what changes with its contents; None: not there."""
        return tuple(map(_stamp, gguf_meta.parts(self._spec.path)))

    def describe(self) -> ModelSpec:
        """A file that is missing or broken is no reason not to start: `problem` says what it is."""
        config, spec = self._config, self._spec
        # One that cannot be loaded is leased for by next to nothing: nobody is evicted for it.
        context_tokens, resident_mib, created_ms, problem = spec.context_tokens, 1, 0, ""
        try:
            meta = gguf_meta.read(spec.path)
            context_tokens = spec.context_of(meta.trained_context_tokens)
            resident_mib = config.resident_mib or estimate_resident_mib(meta, spec)
            created_ms = (_stamp(spec.path) or (0,))[0] // 1_000_000
        except Fault as fault:
            problem = fault.message
            log.get().warning("model file", model=self._key, problem=problem)
        return ModelSpec(
            key=self._key,
            kind=_KINDS[spec.kind],
            lane=config.lane,
            resident_mib=resident_mib,
            places=spec.places,
            max_instances=config.max_instances,
            context_tokens=context_tokens,
            owner=config.owner,
            created_unix_ms=created_ms,
            engine=asdict(spec) | {"path": str(spec.path)},
            problem=problem,
        )


def source_of(
    key: str, config: ModelConfig, models_dir: Path, present: Present = lambda: HOST
) -> Source:
    """What describes a configured model of any kind; `present` tells where it may be placed."""
    if config.kind == "language":
        return ModelFile(key, config, models_dir, present)
    return VectorFile(key, config, models_dir)


def vector_spec(config: ModelConfig, models_dir: Path) -> VectorSpec:
    """The engine's view of `config`; on the CPU unless layers are given."""
    layers = {"auto": 0, "all": ALL_LAYERS}
    given = config.gpu_layers
    return VectorSpec(
        path=models_dir / config.path,
        kind=VectorKind(config.kind),
        pooling=Pooling(config.pooling),
        context_tokens=config.context_tokens,
        places=config.places,
        threads=config.threads or default_threads(),
        batch_tokens=config.batch_tokens or DEFAULT_BATCH_TOKENS,
        gpu_layers=layers[given] if isinstance(given, str) else given,
    )


def spec_of(values: Mapping[str, Any]) -> VectorSpec:
    """The spec that `ModelSpec.engine` carries, in the engine's process."""
    read = {"path": Path, "kind": VectorKind, "pooling": Pooling}
    return VectorSpec(**{k: read[k](v) if k in read else v for k, v in values.items()})


def estimate_resident_mib(meta: GgufMeta, spec: VectorSpec) -> int:
    """Memory of `spec` when loaded: weights + buffers, and for decoders the cache of one call.

    The buffers are a guess from above, for a call of whole texts: activations, the scores of
    attention without flash attention, and logits, which the library makes room for once, and for
    models that have an output layer computes, too.
    """
    call = max(spec.batch_tokens, spec.context_of(meta.trained_context_tokens))
    encodes = (
        meta.values.get(f"{meta.values.get('general.architecture')}.attention.causal") is False
    )
    width = 4 * meta.of_architecture("embedding_length")
    width += 3 * meta.of_architecture("feed_forward_length")
    vocabulary = getattr(meta.values.get("tokenizer.ggml.tokens"), "length", 0)
    cache = 0 if encodes else call * meta.kv_bytes_per_token()
    logits = 4 * call * vocabulary * (1 if encodes else 2)
    total = meta.weights_bytes + cache + logits + 4 * call * (width + call)
    return -(-total // (1 << 20)) + _PROCESS_MIB


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
