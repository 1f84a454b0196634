"""The house in containers, as deploy/compose says: built, started, killed, upgraded, taken down.

A project of its own, with images, ports and volumes of its own: a house that runs here already is
left alone.
"""

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.engine import Engine

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "compose"
VERSIONS = ("e2e-1", "e2e-2")
"""Images that differ in their label alone: whose upgrade is an upgrade nevertheless."""
IMAGES = ("service", "llm", "matte", "envoy")
_BUILD_S = 2400.0
_UP_S = 300.0


@dataclass(frozen=True)
class Composed:
    """One project of Compose."""

    engine: Engine
    port: int
    """Envoy's, plain."""
    tls_port: int
    project: str = "cohabit-e2e"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, version: str) -> Mapping[str, str]:
        return {
            **self.engine.env,
            "COHABIT_VERSION": version,
            "COHABIT_LISTEN": f"127.0.0.1:{self.port}",
            "COHABIT_LISTEN_TLS": f"127.0.0.1:{self.tls_port}",
        }

    def build(self, version: str) -> list[tuple[str, float, str]]:
        """Build the images, which says itself what is under way; name, seconds, size of each."""
        done = subprocess.run(
            [str(ROOT / "deploy" / "docker" / "build"), *IMAGES],
            env={**self.environment(version), "DOCKER": self.engine.docker},
            stdout=subprocess.PIPE,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        rows = [line.split(maxsplit=3) for line in done.stdout.splitlines() if "cohabit/" in line]
        return [(row[0], float(row[1]), row[3]) for row in rows]

    def compose(
        self, *args: str, version: str = VERSIONS[0], within_s: float = 120.0, stdin: str = ""
    ) -> str:
        """`docker compose args`."""
        files = ["-f", str(FOLDER / "compose.yaml")]
        if certificates := os.environ.get("PIP_CERT"):  # a host behind a proxy that has its own
            files += ["-f", str(Path(__file__).parent / "behind_a_proxy.yaml")]
        environment = {**self.environment(version), "E2E_CERTIFICATES": certificates or ""}
        engine = Engine(self.engine.docker, environment)
        return engine.run(
            "compose", "-p", self.project, *files, *args, within_s=within_s, stdin=stdin
        )

    def up(self) -> None:
        """Start all of it; returns when all of it is healthy."""
        self.compose("up", "-d", "--wait", "--quiet-pull", within_s=_UP_S)

    def down(self) -> None:
        """Nothing is left of it but its images."""
        self.compose("--profile", "*", "down", "-v", "--remove-orphans", "-t", "5")

    def key(self, name: str, *options: str) -> str:
        """A new API key."""
        said = self.compose("run", "--rm", "-T", "cohabit", "keys", "add", name, *options)
        return said.strip().splitlines()[-1].strip()

    def inspect(self, service: str) -> Any:
        """What the engine knows of a service's container."""
        container = self.compose("ps", "-aq", service).strip()
        return json.loads(self.engine.run("inspect", container))[0]

    def image(self, service: str) -> str:
        """What its container was made of."""
        return str(self.inspect(service)["Config"]["Image"])

    def health(self, service: str) -> str:
        """starting, healthy or unhealthy."""
        state = self.inspect(service)["State"]
        return str(state["Health"]["Status"]) if state["Running"] else "away"

    def starts(self, service: str) -> str:
        """Another value whenever its container has been started anew."""
        return str(self.inspect(service)["State"]["StartedAt"])

    def kill(self, service: str) -> None:
        """End a service's container as the kernel would: nobody has meant it, so it comes back.

        `docker kill` by somebody who may not signal its process: that is meant, and is undone.
        """
        state = self.inspect(service)
        try:
            os.kill(int(state["State"]["Pid"]), signal.SIGKILL)
        except (PermissionError, ProcessLookupError):
            self.engine.run("kill", state["Id"])
            self.engine.run("start", state["Id"])

    def upgrade(self, service: str, version: str) -> None:
        """Replace a service's container by one of another image; returns when that is healthy."""
        self.compose("up", "-d", "--no-deps", "--wait", service, version=version, within_s=_UP_S)

    def logs(self) -> str:
        """The last lines of everybody."""
        return self.compose("logs", "--no-color", "--tail", "40")
