"""What an engine process is made with: one network, and the bounds of what it takes."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from imaging.values import Bounds, Encoding, Format

FileKind = Literal["onnx", "torch-export", "hub"]
NetworkName = Literal["auto", "u2net", "isnet", "birefnet"]


@dataclass(frozen=True, slots=True)
class HubCode:
    """Code and weights of a hub, at one commit; run only where the configuration trusts it."""

    repo: str
    revision: str
    """Forty hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One network as an engine loads it."""

    path: Path
    """The file; for code of a hub, the folder that its snapshots are kept in."""
    kind: FileKind = "onnx"
    network: NetworkName = "auto"
    hub: HubCode | None = None
    places: int = 2
    threads: int = 1
    """Of the network; 1 or more."""
    on_card: bool = False
    placement_why: str = ""
    device: str = "cpu"
    """Of the house, as BrokerService names it; answers say "cpu" where the network is not on it."""
    compile: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    encoding: Encoding = field(default_factory=Encoding)
    """What is unset in a request."""


def as_json(spec: EngineSpec) -> dict[str, Any]:
    """What `ModelSpec.engine` carries."""
    told = asdict(spec)
    return told | {
        "path": str(spec.path),
        "encoding": told["encoding"] | {"format": spec.encoding.format.value},
    }


def spec_of(told: Mapping[str, Any]) -> EngineSpec:
    """The spec that `as_json` made, in the engine's process."""
    encoding = dict(told["encoding"])
    return EngineSpec(
        **{
            **told,
            "path": Path(told["path"]),
            "hub": HubCode(**told["hub"]) if told["hub"] else None,
            "bounds": Bounds(**told["bounds"]),
            "encoding": Encoding(**encoding | {"format": Format(encoding["format"])}),
        }
    )
