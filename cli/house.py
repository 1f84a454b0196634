"""The whole configuration as the command sees it: every section checked before anything starts.

Section types belong to their services and are imported when they are needed, so that `cohabit
pull` and `cohabit --help` pay for none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from chassis import config
from cli.health import GRPC_SERVICES

S = TypeVar("S", bound=config.Section)


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
    models: Mapping[str, ModelFile]

    @property
    def addresses(self) -> dict[str, str]:
        """The gRPC target of each service, by name."""
        return {name: self.house.address_of(name) for name in GRPC_SERVICES}

    def missing(self) -> dict[str, ModelFile]:
        """Models whose file is not there."""
        return {
            name: model for name, model in self.models.items() if not self.file_of(model).is_file()
        }

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

    document = config.load(path)
    wrong: list[str] = []

    def checked(name: str, kind: type[S]) -> S | None:
        try:
            return document.section(name, kind)
        except config.ConfigError as error:
            wrong.append(str(error))
            return None

    checked("broker", BrokerConfig)
    checked("scheduler", SchedulerConfig)
    llm, edge = checked("llm", LlmConfig), checked("edge", EdgeConfig)
    if llm is None or edge is None or wrong:
        raise config.ConfigError("\n".join(wrong))
    return Whole(document.path, document.house(), edge_url(edge.listen), llm.models)


def edge_url(listen: str) -> str:
    """The URL that reaches a server bound to `listen` ("host:port") from this host."""
    host, _, port = listen.rpartition(":")
    if host in {"0.0.0.0", "", "*"}:
        host = "127.0.0.1"
    elif host in {"::", "[::]"}:
        host = "[::1]"
    return f"http://{host}:{port}"
