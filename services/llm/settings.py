"""Which settings of a model may be overridden for its next load, and what they may be. Pure.

Values come as JSON, by the configuration's names. A refusal names the setting and its limits. What
several settings must keep together, the configuration's own rules say.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from chassis.errors import Fault, Reason
from hosting.values import Setting
from services.llm.config import ModelConfig
from services.llm.engine import ALL_LAYERS, MOST_PLACES, EngineSpec

PATH = "path"
"""The file: overridden by a swap alone."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A whole number from `least` to `most`, or one of `words`."""

    least: int = 0
    most: int = -1
    """Below `least`: no number will do."""
    words: tuple[str, ...] = ()

    def takes(self, value: object) -> bool:
        """Whether it may be that."""
        if isinstance(value, str):
            return value in self.words
        return type(value) is int and self.least <= value <= self.most

    @property
    def spelled(self) -> str:
        """For people."""
        number = [f"a whole number from {self.least} to {self.most}"] * (self.most >= self.least)
        return " or ".join([*number, *(f'"{word}"' for word in self.words)])

    @property
    def schema(self) -> dict[str, Any]:
        """As a JSON schema."""
        number = {"type": "integer", "minimum": self.least, "maximum": self.most}
        kinds = [number] * (self.most >= self.least)
        kinds += [{"type": "string", "enum": list(self.words)}] * bool(self.words)
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


_MOST_TOKENS = 16_777_216

LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "context_tokens": Limits(0, _MOST_TOKENS),
        "places": Limits(1, MOST_PLACES),
        "gpu_layers": Limits(0, 10_000, ("auto", "all")),
        "batch_tokens": Limits(1, 65_536),
        "prefill_chunk_tokens": Limits(1, 65_536),
        "kv_cache_type": Limits(words=("auto", "f16", "q8_0")),
        "cache_tokens": Limits(0, _MOST_TOKENS),
        "prefix_cache_mib": Limits(0, 1_048_576),
        "speculation": Limits(words=("off", "lookup", "draft")),
        "draft_tokens": Limits(1, 64),
    }
)


def check_names(values: Iterable[str]) -> None:
    """Raises Fault INVALID_REQUEST for a setting that cannot be overridden."""
    for name in values:
        if name not in LIMITS:
            known = ", ".join(LIMITS)
            raise _refused(name, f"`{name}` cannot be overridden; what can is: {known}.")


def applied(configured: ModelConfig, overrides: Mapping[str, str]) -> ModelConfig:
    """The configuration with `overrides` in it. Raises Fault INVALID_REQUEST."""
    values = {name: _value(name, text) for name, text in overrides.items()}
    try:
        return ModelConfig.model_validate(configured.model_dump(exclude_unset=True) | values)
    except ValidationError as error:
        said = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise _refused(next(iter(values), ""), f"These settings do not agree: {said}.") from None


def declared(engine: EngineSpec, gpu_layers: int | str) -> tuple[Setting, ...]:
    """Every setting with its limits, and what the next load takes."""
    layers = "all" if engine.gpu_layers == ALL_LAYERS else engine.gpu_layers
    taken: dict[str, object] = {
        "gpu_layers": layers if gpu_layers == "auto" else gpu_layers,
        "kv_cache_type": engine.kv_type,
    }
    return tuple(
        Setting(
            name,
            json.dumps(limits.schema, separators=(",", ":")),
            json.dumps(taken[name] if name in taken else getattr(engine, name)),
        )
        for name, limits in LIMITS.items()
    )


def _value(name: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _refused(name, f"The value of `{name}` is not JSON: {text[:100]}.") from None
    if name == PATH:
        return value
    if not LIMITS[name].takes(value):
        must = f"`{name}` must be {LIMITS[name].spelled}"
        raise _refused(name, f"{must}, not {text[:100]}.")
    return value


def _refused(name: str, message: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, message, metadata={"param": name[:100]})
