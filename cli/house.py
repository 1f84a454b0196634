"""The whole configuration as the command sees it: every section checked before anything starts.

Section types belong to their services and are imported when they are needed, so that `cohabit
pull` and `cohabit --help` pay for none of them.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from chassis import config, tls_config
from cli.model_files import (
    ABSENT,
    ModelFile,
    files_of,
    section_type,
    sections_with_files,
    trouble_with,
)

S = TypeVar("S", bound=config.Section)

USUAL_FILE = Path("cohabit.yaml")
"""The configuration, where none is named."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A configuration that has been checked from end to end."""

    path: Path
    house: config.House
    edge_url: str
    services: tuple[str, ...]
    """Those of gRPC, in starting order."""
    files: tuple[ModelFile, ...]
    """Those of all models that have any."""
    chats: tuple[str, ...] = ()
    """Language models that have files."""
    pretended: tuple[str, ...] = ()
    """Simulated language models."""

    @property
    def addresses(self) -> dict[str, str]:
        """The gRPC target of each service, by name."""
        return {name: self.house.address_of(name) for name in self.services}

    @property
    def usable(self) -> str | None:
        """A model that can be asked something as things stand; None if there is none."""
        broken = {file.model for file in self.troubles()}
        names = [*(name for name in self.chats if name not in broken), *self.pretended]
        return names[0] if names else None

    def missing(self) -> tuple[ModelFile, ...]:
        """Files that are not there."""
        return tuple(file for file, trouble in self.troubles().items() if trouble == ABSENT)

    def troubles(self) -> dict[ModelFile, str]:
        """Files that cannot be used, and why."""
        found = {file: trouble_with(self.place_of(file)) for file in self.files}
        return {file: trouble for file, trouble in found.items() if trouble is not None}

    def place_of(self, file: ModelFile) -> Path:
        """Where the file belongs."""
        return self.house.models_dir / file.path


def load(path: Path | None) -> Whole:
    """Check every section. Raises ConfigError with all that is wrong, one line each."""
    # Their types pull in what `pull` and `--help` have no use for.
    from edge.config import EdgeConfig  # noqa: PLC0415
    from services.broker.config import BrokerConfig  # noqa: PLC0415
    from services.jobs.config import JobsConfig  # noqa: PLC0415
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
    checked("jobs", JobsConfig)
    scheduler, edge = checked("scheduler", SchedulerConfig), checked("edge", EdgeConfig)
    simulated, llm = checked("simulated", SimulatedConfig), checked("llm", LlmConfig)
    filed = [
        checked(name, section_type(name)) for name in sections_with_files(document) if name != "llm"
    ]
    if scheduler is None or edge is None or simulated is None or llm is None or wrong:
        raise config.ConfigError("\n".join(wrong))
    settings_of(scheduler, document)
    tls_config.adopt(document)
    _check_names(document)
    files = tuple(file for section in (llm, *filed) if section for file in files_of(section))
    return Whole(
        path=document.path,
        house=document.house(),
        edge_url=edge_url(edge.listen),
        services=document.grpc_services(),
        files=files,
        chats=tuple(n for n, m in llm.models.items() if m.kind == "language"),
        pretended=tuple(n for n, m in simulated.models.items() if m.kind == "language"),
    )


def _check_names(document: config.Document) -> None:
    """Every model has a name of its own, over all services. Raises ConfigError."""
    owners: dict[str, str] = {}
    for service in document.model_services():
        section = document.data[service]
        for name in (section or {}).get("models") or {}:
            if (owner := owners.setdefault(str(name), service)) != service:
                raise config.ConfigError(
                    f"{document.where((service, 'models', name))}: {service}.models.{name}: "
                    f"expected another name, for this is one of {owner}.models"
                )


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


def edge_url(listen: str) -> str:
    """The URL that reaches a server bound to `listen` ("host:port") from this host."""
    host, _, port = listen.rpartition(":")
    if host in {"0.0.0.0", "", "*"}:
        host = "127.0.0.1"
    elif host in {"::", "[::]"}:
        host = "[::1]"
    return f"http://{host}:{port}"
