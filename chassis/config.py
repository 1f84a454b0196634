"""The one configuration file: found, merged, checked strictly, blamed by line.

`cohabit.yaml` holds what all services share at the top level (`House`) and one section a service.
`cohabit.local.yaml` beside it, where there is one, is merged over it key by key. An unknown key or
a wrong type is a `ConfigError` that names file, line, key and what was expected.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from chassis.marked import ConfigError as ConfigError  # noqa: PLC0414 - part of what is offered here
from chassis.marked import Loc, Mark, merged, read

MODEL_SERVICES = ("llm", "diffusion", "matte", "simulated")
"""Services that host models; each is there when its section is."""

_CALLERS = ("jobs",)
"""Services that call models; each is there when its section is."""

_DIALLED = ("broker", "scheduler", *MODEL_SERVICES, *_CALLERS)
"""Services of gRPC; the edge says in its own section where it listens."""

SECTIONS = (*_DIALLED, "edge")
"""Sections that may stand in the file beside House's own keys."""

CONFIG_ENV = "COHABIT_CONFIG"
_DEFAULT_NAME = "cohabit.yaml"
_LONGEST_SOCKET = "engine-llm-0000000000.sock"
_SOCKET_PATH_BYTES = 107  # sun_path
_MOST_PORT = 65_535

Stamp = tuple[tuple[int, int, int] | None, ...]


class Section(BaseModel):
    """Base of every typed section: frozen, strict, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


LoosePath = Annotated[Path, Field(strict=False)]
"""A path written as a string."""


@dataclass(frozen=True, slots=True)
class FileAt:
    """A file of a model, as it is configured."""

    path: Path
    """Absolute, or relative to models_dir."""
    source: str | None = None
    """What `cohabit pull` gets it from: hf:…, pypi:… or a path."""


def _host_port(value: str) -> str:
    host, colon, port = value.rpartition(":")
    plain = host.removeprefix("[").removesuffix("]")
    whole = host and not host.isspace() and "/" not in host and (":" not in host or host != plain)
    if not colon or not whole or not port.isdecimal() or not 0 < int(port[:6]) <= _MOST_PORT:
        raise ValueError(
            f"expected host:port with a port from 1 to {_MOST_PORT}, e.g. 127.0.0.1:9100"
        )
    return value


def _address(value: str) -> str:
    if not value.startswith("unix:"):
        try:
            return _host_port(value)
        except ValueError as error:
            raise ValueError(f"expected unix:/path or {str(error)[9:]}") from None
    path = value.removeprefix("unix:")
    if not path.startswith("/") or len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
        raise ValueError(
            "expected unix: with an absolute path of at most "
            f"{_SOCKET_PATH_BYTES} bytes, e.g. unix:/run/cohabit/llm.sock"
        )
    return value


def _collector(value: str) -> str:
    scheme, colon, rest = value.partition("://")
    if value and not (colon and scheme in {"http", "https"}):
        raise ValueError("expected http://host:port of a collector, e.g. http://127.0.0.1:4317")
    if value:
        _host_port(rest.removesuffix("/"))
    return value


def _service(value: str) -> str:
    if value not in _DIALLED:
        raise ValueError(f"expected a service: {', '.join(_DIALLED)}")
    return value


Service = Annotated[str, AfterValidator(_service)]
HostPort = Annotated[str, AfterValidator(_host_port)]
Address = Annotated[str, AfterValidator(_address)]
"""Where gRPC is served: `unix:/path` or `host:port`."""


class Tls(Section):
    """Certificates that services show each other on TCP; PEM files."""

    ca: LoosePath
    """Of the authority that signs all others."""
    certificate: LoosePath
    """Of a service, made out to cohabit.internal."""
    key: LoosePath
    """Of the certificate."""


class Traces(Section):
    """Where traces go."""

    endpoint: Annotated[str, AfterValidator(_collector)] = ""
    """http://host:port of a collector that speaks OTLP over gRPC; default $OTEL_EXPORTER_OTLP_…"""
    sample: Annotated[float, Field(ge=0, le=1, strict=False)] = 1.0
    """Share of the requests that are traced; one that comes with a trace follows its sender."""


class House(Section):
    """What every service shares. Relative paths count from the configuration file's folder."""

    run_dir: LoosePath = Path(".cohabit/run")
    """Sockets."""
    state_dir: LoosePath = Path(".cohabit/state")
    """The lease journal and the signing key."""
    models_dir: LoosePath = Path("models")
    """Weights; model paths count from here."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    listen: Mapping[Service, Address] = {}
    """gRPC address a service binds, by service; default a socket in run_dir."""
    addresses: Mapping[Service, Address] = {}
    """Where a service is dialled, by service; default its listen address."""
    metrics: Mapping[Service, HostPort] = {}
    """Where Prometheus scrapes, by service; default nowhere. The edge has a route for it."""
    tls: Tls | None = None
    """Certificates on TCP addresses; default: TCP is plain."""
    traces: Traces = Traces()
    """OpenTelemetry; default: none, unless the environment names a collector."""

    def listen_of(self, service: str) -> str:
        """The address `service` binds."""
        return self.listen.get(service, f"unix:{self.run_dir}/{service}.sock")

    def address_of(self, service: str) -> str:
        """The gRPC target that reaches `service`."""
        return self.addresses.get(service, self.listen_of(service))


def _absolute(tls: Tls | None, base: Path) -> Tls | None:
    # Not resolved: mounted secrets are links, which lead elsewhere when they are renewed.
    if tls is None:
        return None
    return Tls(ca=base / tls.ca, certificate=base / tls.certificate, key=base / tls.key)


S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Document:
    """A merged configuration that remembers where each key was written."""

    path: Path
    data: Mapping[str, Any]
    marks: Mapping[Loc, Mark]
    stamp: Stamp = ()
    """Of its files, from before they were read."""

    def model_services(self) -> tuple[str, ...]:
        """The services that host models in this house: those that have a section."""
        return tuple(name for name in MODEL_SERVICES if name in self.data)

    def model_names(self) -> frozenset[str]:
        """The models of every model service, as they are written."""
        sections = [self.data[name] for name in self.model_services()]
        models = [s.get("models") for s in sections if isinstance(s, Mapping)]
        return frozenset(
            str(key) for named in models if isinstance(named, Mapping) for key in named
        )

    def grpc_services(self) -> tuple[str, ...]:
        """Every service of gRPC of this house, in starting order."""
        callers = (name for name in _CALLERS if name in self.data)
        return ("broker", "scheduler", *self.model_services(), *callers)

    def section(self, name: str, kind: type[S]) -> S:
        """Section `name`, checked against `kind`. Raises ConfigError."""
        value = self.data.get(name)
        return self._checked((name,), {} if value is None else value, kind)

    def house(self) -> House:
        """The keys all services share, paths made absolute. Raises ConfigError."""
        own = {key: value for key, value in self.data.items() if key not in SECTIONS}
        house = self._checked((), own, House)
        base = self.path.parent
        absolute = house.model_copy(
            update={
                name: (base / getattr(house, name)).resolve()
                for name in ("run_dir", "state_dir", "models_dir")
            }
            | {"tls": _absolute(house.tls, base)}
        )
        longest = f"{absolute.run_dir}/{_LONGEST_SOCKET}"
        if len(os.fsencode(longest)) > _SOCKET_PATH_BYTES:
            raise ConfigError(
                f"{self.where(('run_dir',))}: run_dir: expected a folder whose sockets have paths "
                f"of at most {_SOCKET_PATH_BYTES} bytes, got {absolute.run_dir}; "
                "set run_dir to a shorter one, e.g. /run/cohabit"
            )
        return absolute

    def _checked(self, at: Loc, value: Any, kind: type[S]) -> S:
        try:
            return kind.model_validate(value)
        except ValidationError as error:
            lines = [self._blame(at + tuple(e["loc"]), dict(e), kind) for e in error.errors()]
            raise ConfigError("\n".join(lines)) from None

    def _blame(self, loc: Loc, error: Mapping[str, Any], kind: type[BaseModel]) -> str:
        if loc[-1:] == ("[key]",):  # pydantic's word for a key that is not allowed
            loc = loc[:-1]
        key = ".".join(str(part) for part in loc) or "(file)"
        if error["type"] == "extra_forbidden":
            known = [*kind.model_fields, *(SECTIONS if kind is House else ())]
            hint = f"; known here: {', '.join(sorted(known))}" if len(loc) <= 2 else ""
            return f"{self.where(loc)}: {key}: unknown key{hint}"
        if error["type"] == "missing":
            return f"{self.where(loc)}: {key}: missing; expected a value"
        said = str(error["msg"]).removeprefix("Value error, ")
        expected = said[:1].lower() + said[1:].replace("Input should be", "expected")
        expected = expected.replace("input should be", "expected")
        if isinstance(error["input"], Mapping):  # a rule over several keys says which it means
            return f"{self.where(loc)}: {key}: {expected}"
        return f"{self.where(loc)}: {key}: {expected}, got {error['input']!r}"

    def where(self, loc: Loc) -> str:
        """File and line of a key, or of the nearest one above it that was written."""
        while loc and loc not in self.marks:
            loc = loc[:-1]
        mark = self.marks.get(loc)
        return f"{mark.file}:{mark.line}" if mark else str(self.path)


def load(path: Path | None = None) -> Document:
    """Read the configuration at `path` and its local overlay. Raises ConfigError.

    Without a path: `$COHABIT_CONFIG`, else `./cohabit.yaml`.
    """
    path = (path or Path(os.environ.get(CONFIG_ENV, _DEFAULT_NAME))).absolute()
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; name one with --config")
    stamp = stamp_of(path)
    marks: dict[Loc, Mark] = {}
    data = read(path, marks)
    overlay = overlay_of(path)
    if overlay.is_file():
        over_marks: dict[Loc, Mark] = {}
        data = merged(data, read(overlay, over_marks))
        marks |= over_marks
    document = Document(path, data, marks, stamp)
    document.house()
    return document


def read_beside(path: Path) -> Document:
    """A file of its own beside the configuration, which no overlay changes. Raises ConfigError."""
    marks: dict[Loc, Mark] = {}
    return Document(path, read(path, marks), marks)


def overlay_of(path: Path) -> Path:
    """The file that is merged over the configuration at `path`, where it is there."""
    return path.with_suffix(".local.yaml")


def stamp_of(path: Path) -> Stamp:
    """Of the configuration at `path` and its overlay, by what changes when either is written,
    renamed or linked anew; None: not there.
    """
    return tuple(map(_stamp_of, (path, overlay_of(path))))


def fail(error: ConfigError) -> NoReturn:
    """Print the error, in red on a terminal, and exit with 2."""
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    sys.stderr.write(f"{red}{error}{plain}\n")
    raise SystemExit(2)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
