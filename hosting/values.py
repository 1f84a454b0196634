"""What a model service declares about its models, and where engines may listen."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from chassis.tls import TlsFiles

AUTO = "auto"
"""In place of an engine host: the one that this host has where the scheduler is."""


class Kind(Enum):
    """What a model does; values are those of cohabit.models.v1.ModelKind."""

    LANGUAGE = 1
    EMBEDDING = 2
    RERANKER = 3
    DIFFUSION = 4
    MATTE = 5
    TRANSCRIPTION = 6
    SYNTHESIS = 7
    UPSTREAM = 8


@dataclass(frozen=True, slots=True)
class Setting:
    """What may be overridden for a model's next load."""

    name: str
    json_schema: str
    """What it may be."""
    value: str
    """What the next load takes, as JSON."""


@dataclass(frozen=True, slots=True)
class Extra:
    """Memory that an instance can do without, under a lease of its own."""

    name: str
    """What it is for: part of the lease's holder, and how the engine hears that it is there."""
    mib: int


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One configured model, as its service describes it to hosting."""

    key: str
    kind: Kind
    lane: str
    resident_mib: int
    peak_transient_mib: int = 0
    extras: tuple[Extra, ...] = ()
    """Optional memory of an instance, beside `resident_mib`."""
    places: int = 1
    max_instances: int = 1
    """Engine processes it may have side by side."""
    context_tokens: int = 0
    family: str = ""
    owner: str = ""
    created_unix_ms: int = 0
    modalities: tuple[str, ...] = ("text",)
    engine: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the engine process as JSON."""
    measure: bool = False
    """Whether to lease by what its engines were seen to hold, rather than by what stands here."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Settings of the next load that differ from the configuration, as JSON."""
    settings: tuple["Setting", ...] = ()
    """What may be overridden."""
    problem: str = ""
    """One sentence: why it cannot be loaded as things stand. Empty: nothing is known against it."""


class Source(Protocol):
    """What describes one model, and describes it again when its files have changed.

    Both calls may block; hosting makes them on a thread.
    """

    def stamp(self) -> Hashable:
        """Another value whenever `describe` would look at other files; cheap."""

    def describe(self) -> ModelSpec:
        """The model as it stands. Never fails for a model that is broken: `problem` says so."""


@runtime_checkable
class Adjustable(Source, Protocol):
    """A source whose settings may be overridden."""

    def override(self, values: Mapping[str, str]) -> None:
        """Settings for the next load, as JSON, in place of former ones; none takes all back.

        Blocks. Raises Fault INVALID_REQUEST that names the setting and its limits; nothing is
        changed then.
        """


@dataclass(frozen=True, slots=True)
class EngineHome:
    """Where the engines of one service live."""

    service: str
    """Prefix of lease holders, e.g. "llm"."""
    module: str
    """Engine processes run `python -P -m <module>`."""
    run_dir: Path
    log_level: str
    ports: tuple[int, int] | None = None
    """Over TCP: first and last port engines may take; None: Unix sockets in run_dir."""
    host: str = "127.0.0.1"
    """Over TCP: the address engines bind and are dialled at; AUTO: that towards the scheduler."""
    scheduler: str = ""
    """The gRPC target of the scheduler, for AUTO."""
    tls: TlsFiles | None = None
    """What engines show and believe, over TCP."""
    collector: str = ""
    """Where engines tell their traces; empty: nowhere."""
    load_timeout_s: float = 600.0
    removal_drain_s: float = 60.0
    """What runs on a model that is configured no more may take this long."""
    stop_timeout_s: float = 4.0
    silence_s: float = 20.0
    """An engine that has spoken once and then says nothing for this long is wedged, and killed;
    they speak every 2 s."""

    @property
    def socket_prefix(self) -> str:
        """How the sockets of this service's engines are called in run_dir.

        By three letters, for the path of a socket has few.
        """
        return f"engine-{self.service[:3]}-"

    def sweep(self) -> None:
        """Remove the sockets of an earlier life's engines: they died with it."""
        for left in self.run_dir.glob(f"{self.socket_prefix}*.sock"):
            left.unlink(missing_ok=True)
