"""The configured models as hosting wants to know them, described by their files' headers.

A description is made of four things: the configuration, what was overridden of it (`settings`), the
file, and the device of the house. A change of any of them changes the stamp.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from chassis import log
from chassis.errors import Fault, Reason
from hosting.house_device import HOST, Device
from hosting.values import Extra, Kind, ModelSpec
from services.llm import footprint, gguf_meta, settings
from services.llm.config import MOST_PREFIX_CACHE_MIB, ModelConfig
from services.llm.engine import ALL_LAYERS, DRAFT, EngineSpec
from services.llm.gguf_meta import GgufMeta
from services.llm.placement import Layers, place
from services.llm.profiles import PROFILES, profile_of
from services.llm.settings import PATH

Present = Callable[[], Device]
"""What there is to place models on, as far as is known now."""


@dataclass(frozen=True, slots=True)
class Described:
    """A model on a device: what its engine is made with, and what is leased for it."""

    engine: EngineSpec
    resident_mib: int
    extras: tuple[Extra, ...] = ()


class ModelFile:
    """`hosting.values.Adjustable` of one configured model."""

    def __init__(
        self,
        key: str,
        config: ModelConfig,
        models_dir: Path,
        device: Present = lambda: HOST,
    ) -> None:
        self._key, self._configured, self._models_dir = key, config, models_dir
        self._config, self._device = config, device
        self._overrides: Mapping[str, str] = {}

    @property
    def path(self) -> Path:
        """The file that the next load takes."""
        return self._models_dir / self._config.path

    @property
    def overrides(self) -> Mapping[str, str]:
        """By name, as JSON; the file of a swap among them."""
        return self._overrides

    def stamp(self) -> Hashable:
        """Which files these are, each by what changes with its contents (None: not there), and all
        else that a description depends on.
        """
        files = tuple(map(_stamp, gguf_meta.parts(self.path)))
        if (draft_path := self._draft_path(self._config)) is not None:
            files += tuple(map(_stamp, gguf_meta.parts(draft_path)))
        return files, self.path, tuple(sorted(self._overrides.items())), self._device()

    def override(self, values: Mapping[str, str]) -> None:
        """Settings for the next load, as JSON, in place of former ones; the file of a swap stays
        until nothing is overridden any more. Raises Fault INVALID_REQUEST.
        """
        former = {PATH: self._overrides[PATH]} if values and PATH in self._overrides else {}
        settings.check_names(values)
        self._set({**former, **values})

    def replace_file(self, path: Path, values: Mapping[str, str]) -> None:
        """As `override`, with another file. Raises Fault INVALID_REQUEST, MODEL_FAILED for a file
        that cannot be used, NEVER_FITS; nothing is changed then.
        """
        settings.check_names(values)
        overrides = {PATH: json.dumps(str(path)), **values}
        config, device = settings.applied(self._configured, overrides), self._device()
        needed = self._described(config, gguf_meta.read(path), device)
        if 0 < device.lendable_mib < needed.resident_mib:
            raise Fault(
                Reason.NEVER_FITS,
                f"{path.name} needs {needed.resident_mib} MiB, and the house lends at most "
                f"{device.lendable_mib} MiB; choose another, or smaller settings.",
            )
        self._set(overrides)

    def put_back(self, overrides: Mapping[str, str]) -> None:
        """What was overridden before a swap that failed."""
        self._set(overrides)

    def describe(self) -> ModelSpec:
        """A file that is missing or broken is no reason not to start: `problem` says what it is."""
        config = self._config
        # One that cannot be loaded is leased for by next to nothing: nobody is evicted for it.
        described = Described(config.spec(self._models_dir), 1)
        context_tokens, created_ms, problem = config.context_tokens, 0, ""
        try:
            meta = gguf_meta.read(self.path)
            described = self._described(config, meta, self._device())
            context_tokens = described.engine.context_tokens or meta.trained_context_tokens
            created_ms = ((_stamp(self.path) or (0,))[0]) // 1_000_000
        except Fault as fault:
            problem = fault.message
            log.get().warning("model file", model=self._key, problem=problem)
        return ModelSpec(
            key=self._key,
            kind=Kind.LANGUAGE,
            lane=config.lane,
            resident_mib=described.resident_mib,
            extras=described.extras,
            places=described.engine.places,
            max_instances=config.max_instances,
            context_tokens=context_tokens,
            owner=config.owner,
            created_unix_ms=created_ms,
            engine=_json(described.engine),
            problem=problem,
            overrides=dict(self._overrides),
            settings=settings.declared(described.engine, config.gpu_layers),
        )

    def _described(self, config: ModelConfig, meta: GgufMeta, device: Device) -> Described:
        draft_path = self._draft_path(config)
        draft = gguf_meta.read(draft_path) if draft_path is not None else None
        return describe(config, self._models_dir, meta, device, draft)

    def _draft_path(self, config: ModelConfig) -> Path | None:
        if config.speculation != "draft" or config.draft_path is None:
            return None
        return self._models_dir / config.draft_path

    def _set(self, overrides: Mapping[str, str]) -> None:
        self._config = settings.applied(self._configured, overrides)
        self._overrides = dict(overrides)


def describe(
    config: ModelConfig,
    models_dir: Path,
    meta: GgufMeta,
    device: Device,
    draft: GgufMeta | None = None,
) -> Described:
    """The model of that header on that device, with that draft model. Pure. Raises Fault
    MODEL_FAILED.
    """
    trained = meta.trained_context_tokens
    if 0 < trained < config.context_tokens:
        raise Fault(
            Reason.MODEL_FAILED,
            f"The model {config.path.name} was trained for {trained} tokens of context; "
            f"set its context_tokens to 1 to {trained}, not {config.context_tokens}.",
        )
    card = profile_of(device.card)
    whole = _sized(config, config.spec(models_dir, card, Layers(ALL_LAYERS, "")), meta)
    layers = place(config.gpu_layers, device, footprint.estimate_card_mib(meta, whole))
    profile = card if layers.count else PROFILES["cpu"]
    engine = _sized(config, config.spec(models_dir, profile, layers), meta)
    if device.card:
        needed_mib = footprint.estimate_card_mib(meta, engine)
    else:
        needed_mib = footprint.estimate_resident_mib(meta, engine)
    # A model that leaves the card alone is leased next to nothing of it.
    return Described(
        engine,
        config.resident_mib or max(1, needed_mib),
        _extras(draft, meta, engine, device),
    )


def _extras(
    draft: GgufMeta | None, meta: GgufMeta, engine: EngineSpec, device: Device
) -> tuple[Extra, ...]:
    if draft is None:
        return ()
    mib = footprint.estimate_draft_mib(draft, meta, engine, on_card=bool(device.card))
    return (Extra(DRAFT, max(1, mib)),)


def _sized(config: ModelConfig, engine: EngineSpec, meta: GgufMeta) -> EngineSpec:
    """With the sizes that only the header can tell."""
    if engine.cache_tokens and not engine.context_tokens:
        trained = meta.trained_context_tokens
        engine = replace(engine, context_tokens=min(trained, engine.cache_tokens))
    if config.prefix_cache_mib is None:
        cache_mib = -(-footprint.kv_cache_bytes(meta, engine) // (1 << 20))
        engine = replace(engine, prefix_cache_mib=min(MOST_PREFIX_CACHE_MIB, cache_mib))
    return engine


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _json(spec: EngineSpec) -> dict[str, Any]:
    draft_path = str(spec.draft_path) if spec.draft_path is not None else None
    return asdict(spec) | {"path": str(spec.path), "draft_path": draft_path}
