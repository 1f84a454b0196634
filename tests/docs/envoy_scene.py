"""The scene of the page about Envoy: a house, and Envoy in front of it on ports of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.scenes import STANDS_IN, house
from tests.docs.shell import Shell
from tests.envoy_kit import SERVICES, running_envoy

_PORTS = {"8443": "public", "8000": "plain", "8001": "insides", "9901": "admin"}


@contextmanager
def envoy(folder: Path) -> Iterator[Shell]:
    """What a reader has who has started both; starting Envoy once more only checks its files."""
    with house(folder) as shell:
        program = folder / ".venv" / "bin" / "envoy"
        program.unlink()
        program.symlink_to(STANDS_IN / "envoy")
        sockets = {name: f"unix:{folder}/.cohabit/run/{name}.sock" for name in SERVICES}
        edge = shell.env["URL"].removeprefix("http://")
        (folder / "front").mkdir()
        with running_envoy(folder / "front", [edge], sockets) as front:
            ports = {
                f"{host}:{told}": f"{host}:{front.ports[name]}"
                for told, name in _PORTS.items()
                for host in ("127.0.0.1", "localhost")
            }
            yield Shell(folder, {**shell.replaced, **ports}, shell.env)
