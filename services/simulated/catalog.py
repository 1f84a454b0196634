"""The configured profiles as hosting wants to know them."""

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from pathlib import Path

from hosting.values import Kind, ModelSpec
from services.simulated.config import ModelConfig


@dataclass(frozen=True, slots=True)
class Ground:
    """What all engines of the service stand on."""

    run_dir: Path
    broker: str
    """gRPC target."""
    time_scale: float
    configured_unix_ms: int
    """When the configuration was written last: what stands for the age of these models."""


class ProfiledModel:
    """`hosting.values.Source` of one configured profile, which never changes."""

    def __init__(self, key: str, config: ModelConfig, ground: Ground) -> None:
        self._spec = ModelSpec(
            key=key,
            kind=Kind[config.kind.upper()],
            lane=config.lane,
            resident_mib=config.resident_mib,
            peak_transient_mib=config.peak_mib,
            places=config.places,
            max_instances=config.max_instances,
            context_tokens=config.context_tokens,
            family=config.family,
            owner=config.owner,
            created_unix_ms=ground.configured_unix_ms,
            engine={
                "profile": asdict(config.profile(ground.time_scale)),
                "run_dir": str(ground.run_dir),
                "broker": ground.broker,
            },
        )

    def stamp(self) -> Hashable:
        """Always the same."""
        return None

    def describe(self) -> ModelSpec:
        """As configured."""
        return self._spec
