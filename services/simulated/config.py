"""The `simulated` section of the configuration: models by their profiles."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from chassis.config import Section
from hosting.config import HostingSection
from services.simulated.profile import LANGUAGE, Profile

_MOST_UNLOAD_S = 3.0
"""An engine that needs longer to stop is killed."""

_Count = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(ge=0)]
_Rate = Annotated[float, Field(gt=0)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]


class ModelConfig(Section):
    """The profile of one model."""

    kind: Literal[
        "language", "embedding", "reranker", "diffusion", "matte", "transcription", "synthesis"
    ]
    """What it pretends to do. Language models answer chats; all kinds take runs."""
    lane: str
    """The scheduler's lane its requests are charged to."""
    family: str = ""
    """Models of one family stand in for each other; clients may ask for it by this name."""
    resident_mib: _Count
    """Memory of one loaded instance."""
    peak_mib: Annotated[int, Field(ge=0)] = 0
    """What one request adds to it while it runs; 0 for language models."""
    places: _Count = 1
    """Requests one instance runs side by side."""
    max_instances: _Count = 1
    """Instances that may be loaded at once."""
    context_tokens: Annotated[int, Field(ge=0)] = 0
    """Language models: longest prompt plus answer."""
    answer_tokens: _Count = 128
    """Language models: an answer ends by itself after so many."""
    load_s: _Seconds = 5.0
    """Its memory is taken up evenly over this time."""
    unload_s: Annotated[float, Field(ge=0, le=_MOST_UNLOAD_S)] = 0.0
    """Its memory is held for this long after it was told to stop."""
    work_s: _Seconds = 1.0
    """A run takes this long unless it says otherwise."""
    prefill_tokens_per_s: _Rate = 2000.0
    """Language models: the pace of the prompt."""
    tokens_per_s: _Rate = 50.0
    """Language models: the pace of each answer."""
    owner: str = "simulated"
    """Shown in the list of models."""

    @model_validator(mode="after")
    def _of_its_kind(self) -> "ModelConfig":
        if self.kind == LANGUAGE and not self.context_tokens:
            raise ValueError("expected context_tokens, which a language model needs")
        if self.kind == LANGUAGE and self.peak_mib:
            raise ValueError(
                "expected no peak_mib: a language model's KV cache is part of its resident_mib"
            )
        return self

    def profile(self, time_scale: float) -> Profile:
        """The engine's view of it."""
        return Profile(
            kind=self.kind,
            places=self.places,
            context_tokens=self.context_tokens,
            answer_tokens=self.answer_tokens,
            resident_mib=self.resident_mib,
            peak_mib=self.peak_mib,
            load_s=self.load_s * time_scale,
            unload_s=self.unload_s * min(1.0, time_scale),
            work_s=self.work_s * time_scale,
            prefill_tokens_per_s=self.prefill_tokens_per_s / time_scale,
            tokens_per_s=self.tokens_per_s / time_scale,
            time_scale=time_scale,
        )


class SimulatedConfig(HostingSection):
    """The service of simulated models."""

    models: Mapping[_Name, ModelConfig] = {}
    """By the name clients ask for."""
    time_scale: Annotated[float, Field(gt=0)] = 1.0
    """Multiplies all times of all profiles, and those that requests ask for; 0.01: a hundred times
    as fast."""
