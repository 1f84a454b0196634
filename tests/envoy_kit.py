"""A real Envoy before real edges, as `deploy/envoy` has it: what its tests share."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from deploy.envoy.place import ClientTls, Places, write
from tests.integration.house import ROOT, House, free_port, until

ENVOY = Path(sys.executable).with_name("envoy")
SELF_SIGNED = ROOT / "deploy" / "envoy" / "self_signed.sh"
SERVICES = ("scheduler", "broker", "jobs")
DEADLINE_S = 30.0
ALONE = ("--concurrency", "1", "--use-dynamic-base-id", "--log-level", "warning")
"""On a machine with other Envoys."""


@dataclass(frozen=True)
class Envoy:
    """A running one."""

    folder: Path
    ports: Mapping[str, int]
    process: "subprocess.Popen[bytes]"

    def url(self, listener: str) -> str:
        scheme = "https" if listener == "public" else "http"
        return f"{scheme}://127.0.0.1:{self.ports[listener]}"

    @property
    def certificate(self) -> Path:
        return self.folder / "tls" / "tls.crt"

    @property
    def log(self) -> str:
        return (self.folder / "envoy.log").read_text()

    async def served(self) -> dict[int, int]:
        """Requests by the port of the edge that got them."""
        return {
            one["address"]["socket_address"]["port_value"]: next(
                int(stat.get("value", 0)) for stat in one["stats"] if stat["name"] == "rq_total"
            )
            for one in await self._edges()
        }

    async def hosts(self) -> dict[int, list[str]]:
        """The edges by port, with what is held against each of them."""
        return {
            one["address"]["socket_address"]["port_value"]: [
                name for name, failed in one["health_status"].items() if failed is True
            ]
            for one in await self._edges()
        }

    async def _edges(self) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"{self.url('admin')}/clusters?format=json")
        (edges,) = (one for one in answer.json()["cluster_statuses"] if one["name"] == "edge")
        hosts: list[dict[str, Any]] = edges.get("host_statuses", [])
        return hosts

    async def settled(self, well: Sequence[int], within_s: float = DEADLINE_S) -> float:
        """Wait until exactly the edges at these ports are held to be well; how long that took."""

        async def true() -> bool:
            hosts = await self.hosts()
            return {port for port, held in hosts.items() if not held} == set(well)

        return await until(true, within_s, f"edges at {well} alone are well")


def edge_of(house: House) -> str:
    """Where its edge is: host:port."""
    return house.url.removeprefix("http://")


def services_of(house: House) -> dict[str, str]:
    return {name: house.address(name) for name in SERVICES}


def placed_in(
    folder: Path, edges: Sequence[str], services: Mapping[str, str], tls: ClientTls | None = None
) -> dict[str, int]:
    """Envoy's files for these edges, on free ports: by listener."""
    ports = {name: free_port() for name in ("public", "plain", "insides", "admin")}
    places = Places(
        folder=str(folder),
        certificates=str(folder / "tls"),
        edges=tuple(edges),
        services=services,
        listeners={name: f"127.0.0.1:{port}" for name, port in ports.items()},
        admin=f"127.0.0.1:{ports['admin']}",
        tls=tls,
    )
    write(folder, places)
    return ports


@contextmanager
def running_envoy(
    folder: Path,
    edges: Sequence[str],
    services: Mapping[str, str],
    change: Callable[[str], str] = str,
    tls: ClientTls | None = None,
) -> Iterator[Envoy]:
    """Envoy on free ports, before these edges, until the end of the block.

    `change`: what an operator has edited in envoy.yaml; `tls`: what services are shown.
    """
    ports = placed_in(folder, edges, services, tls)
    (folder / "envoy.yaml").write_text(change((folder / "envoy.yaml").read_text()))
    if not (folder / "tls").exists():
        subprocess.run([SELF_SIGNED, folder / "tls"], check=True, timeout=DEADLINE_S)
    with (folder / "envoy.log").open("wb") as out:
        process = subprocess.Popen(
            [ENVOY, "-c", folder / "envoy.yaml", *ALONE], stdout=out, stderr=out
        )
    envoy = Envoy(folder, ports, process)
    try:
        _await_ready(envoy)
        yield envoy
    finally:
        process.terminate()
        try:
            process.wait(10)
        finally:
            process.kill()
            process.wait()


@contextmanager
def fronting(house: House, folder: Path, change: Callable[[str], str] = str) -> Iterator[Envoy]:
    """Envoy before one house and its own edge."""
    with running_envoy(folder, [edge_of(house)], services_of(house), change) as envoy:
        yield envoy


def _await_ready(envoy: Envoy) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and envoy.process.poll() is None:
        try:
            if httpx.get(f"{envoy.url('admin')}/ready", timeout=1).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"Envoy did not come up:\n{envoy.log}")


@contextmanager
def another_edge(house: House, name: str, **changes: object) -> Iterator["Edge"]:
    """One more edge of a house, as a process of its own, which may be killed and started again."""
    port = free_port()
    whole = yaml.safe_load((house.folder / "cohabit.yaml").read_text())
    services = [one for one in ("broker", "scheduler", "llm", "matte", "jobs") if one in whole]
    own = {
        "run_dir": name,
        "addresses": {service: house.address(service) for service in services},
        "edge": whole["edge"] | changes | {"listen": f"127.0.0.1:{port}"},
    }
    config = house.folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(whole | own))
    edge = Edge(config, port)
    edge.start()
    try:
        yield edge
    finally:
        edge.kill()


class Edge:
    """An edge that can be started, told to stop, stopped by signal, and killed."""

    def __init__(self, config: Path, port: int) -> None:
        self._config, self.port = config, port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self._config.parent / f"{self._config.stem}.log").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "edge", "--config", str(self._config)],
                stdout=out,
                stderr=out,
                cwd=self._config.parent,
                env={**os.environ, "COHABIT_PARENT_PID": str(os.getpid())},
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit status."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, DEADLINE_S)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
