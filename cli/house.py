"""The whole configuration as the command sees it: every section checked before anything starts.

Section types belong to their services and are imported when they are needed, so that `cohabit
pull` and `cohabit --help` pay for none of them.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from chassis import config

S = TypeVar("S", bound=config.Section)

USUAL_FILE = Path("cohabit.yaml")
"""The configuration, where none is named."""
ABSENT = "is not there"


class ModelFile(Protocol):
    """What the command needs to know of a configured model."""

    @property
    def path(self) -> Path:
        """Its file, relative to models_dir or absolute."""

    @property
    def source(self) -> str | None:
        """What `cohabit pull` gets it from."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A configuration that has been checked from end to end."""

    path: Path
    house: config.House
    edge_url: str
    services: tuple[str, ...]
    """Those of gRPC, in starting order."""
    models: Mapping[str, ModelFile]
    """Those that have files, by name."""
    pretended: tuple[str, ...] = ()
    """Simulated language models."""

    @property
    def addresses(self) -> dict[str, str]:
        """The gRPC target of each service, by name."""
        return {name: self.house.address_of(name) for name in self.services}

    @property
    def usable(self) -> str | None:
        """A model that can be asked something as things stand; None if there is none."""
        troubles = self.troubles()
        names = [*(name for name in self.models if name not in troubles), *self.pretended]
        return names[0] if names else None

    def missing(self) -> dict[str, ModelFile]:
        """Models whose file is not there."""
        return {
            name: model
            for name, model in self.models.items()
            if trouble_with(self.file_of(model)) == ABSENT
        }

    def troubles(self) -> dict[str, str]:
        """Models whose file cannot be used, and why."""
        found = {name: trouble_with(self.file_of(model)) for name, model in self.models.items()}
        return {name: trouble for name, trouble in found.items() if trouble is not None}

    def file_of(self, model: ModelFile) -> Path:
        """Where the model's file belongs."""
        return self.house.models_dir / model.path


def load(path: Path | None) -> Whole:
    """Check every section. Raises ConfigError with all that is wrong, one line each."""
    # Their types pull in what `pull` and `--help` have no use for.
    from edge.config import EdgeConfig  # noqa: PLC0415
    from services.broker.config import BrokerConfig  # noqa: PLC0415
    from services.llm.config import LlmConfig  # noqa: PLC0415
    from services.scheduler.config import SchedulerConfig  # noqa: PLC0415
    from services.scheduler.settings import settings_of  # noqa: PLC0415
    from services.simulated.config import SimulatedConfig  # noqa: PLC0415

    document = config.load(path)
    wrong: list[str] = []

    def checked(name: str, kind: type[S]) -> S | None:
        try:
            return document.section(name, kind)
        except config.ConfigError as error:
            wrong.append(str(error))
            return None

    checked("broker", BrokerConfig)
    scheduler = checked("scheduler", SchedulerConfig)
    llm, edge = checked("llm", LlmConfig), checked("edge", EdgeConfig)
    simulated = checked("simulated", SimulatedConfig)
    if scheduler is None or llm is None or edge is None or simulated is None or wrong:
        raise config.ConfigError("\n".join(wrong))
    settings_of(scheduler, document)
    for name in sorted(llm.models.keys() & simulated.models.keys()):
        raise config.ConfigError(
            f"{document.where(('simulated', 'models', name))}: simulated.models.{name}: expected "
            "another name, for this is one of llm.models"
        )
    return Whole(
        path=document.path,
        house=document.house(),
        edge_url=edge_url(edge.listen),
        services=document.grpc_services(),
        models=llm.models,
        pretended=tuple(n for n, m in simulated.models.items() if m.kind == "language"),
    )


def configured_models(document: config.Document) -> list[str]:
    """The names of configured models that have files."""
    llm = document.data.get("llm")
    models = llm.get("models") if isinstance(llm, Mapping) else None
    return [str(name) for name in models] if isinstance(models, Mapping) else []


def model_named(document: config.Document, name: str) -> ModelFile | None:
    """The configured model `name`; None if there is none. Raises ConfigError."""
    if name not in configured_models(document):
        return None
    from services.llm.config import LlmConfig  # noqa: PLC0415 - only who names a model needs it

    return document.section("llm", LlmConfig).models[name]


def configured_edge_url(path: Path | None) -> str | None:
    """Where the edge of the configuration is reached; None without one. Raises ConfigError."""
    try:
        document = config.load(path)
    except config.ConfigError:
        if path is None and config.CONFIG_ENV not in os.environ and not USUAL_FILE.exists():
            return None
        raise
    from edge.config import EdgeConfig  # noqa: PLC0415

    return edge_url(document.section("edge", EdgeConfig).listen)


def trouble_with(path: Path) -> str | None:
    """Why the file cannot be read, to follow its path in a sentence; None if it can."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "is no file"
        with path.open("rb"):
            return None
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def edge_url(listen: str) -> str:
    """The URL that reaches a server bound to `listen` ("host:port") from this host."""
    host, _, port = listen.rpartition(":")
    if host in {"0.0.0.0", "", "*"}:
        host = "127.0.0.1"
    elif host in {"::", "[::]"}:
        host = "[::1]"
    return f"http://{host}:{port}"
