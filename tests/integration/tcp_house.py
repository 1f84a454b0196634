"""A house over TCP whose services are started one by one, as containers are: no launcher."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.integration.house import until
from tests.tiny_gguf import make_tiny_gguf
from tests.tls_kit import certify

SERVICES = ("broker", "scheduler", "llm")
CHAT: Any = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}
_STOP_S = 15.0


def free_ports(count: int) -> list[int]:
    """So many, in a row if there is luck; nobody else had them a moment ago."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            ports.append(int(probe.getsockname()[1]))
    return ports


def free_range(count: int) -> tuple[int, int]:
    """First and last of so many consecutive ports that are free, and not among those that the
    system takes for outgoing connections.
    """
    for _ in range(200):
        first = random.randrange(20_000, 32_000)
        with suppress(OSError), ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first, first + count - 1
    raise AssertionError("no consecutive ports are free")


@dataclass
class TcpHouse:
    """Its services by name, each a process of its own."""

    folder: Path
    config: Path
    port: int
    addresses: dict[str, str]
    engine_ports: tuple[int, int]
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "house.log"

    def start(self, service: str) -> None:
        module = "edge" if service == "edge" else f"services.{service}"
        with self.log.open("ab") as out:
            self.processes[service] = subprocess.Popen(
                [sys.executable, "-P", "-m", module, "--config", str(self.config)],
                stdout=out,
                stderr=out,
                cwd=self.folder,
                env={**os.environ, "COHABIT_PARENT_PID": str(os.getpid())},
            )

    def end(self, service: str, number: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(service)
        process.send_signal(number)
        process.wait(_STOP_S)

    async def chats(self, model: str = "tiny", within_s: float = 60.0) -> None:
        """Until an answer comes: whatever was restarted has been found again."""

        async def answered() -> bool:
            async with httpx.AsyncClient(timeout=10, trust_env=False) as http:
                with suppress(httpx.TransportError):
                    answer = await http.post(
                        f"{self.url}/v1/chat/completions", json={**CHAT, "model": model}
                    )
                    return answer.status_code == 200
                return False

        try:
            await until(answered, within_s, "an answer")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log.read_text()[-6000:]}") from None

    async def ask(self, model: str = "tiny") -> httpx.Response:
        async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
            return await http.post(f"{self.url}/v1/chat/completions", json={**CHAT, "model": model})


@contextmanager
def tcp_house(folder: Path, *, engines: int = 4, **sections: dict[str, Any]) -> Iterator[TcpHouse]:
    """Configured, with certificates, and not started; whatever is started ends with the block."""
    edge, *ports = free_ports(1 + len(SERVICES))
    listen = {name: f"127.0.0.1:{port}" for name, port in zip(SERVICES, ports, strict=True)}
    files = certify(folder / "certificates")
    make_tiny_gguf(folder / "tiny.gguf", context=1024)
    engine_ports = free_range(engines)
    models = {
        name: {"path": "tiny.gguf", "places": 2, "context_tokens": 512} for name in ("tiny", "twin")
    }
    whole: dict[str, Any] = {
        "run_dir": "run",
        "state_dir": "state",
        "models_dir": ".",
        "listen": listen,
        "tls": {"ca": str(files.ca), "certificate": str(files.certificate), "key": str(files.key)},
        "broker": {"device": "cpu"},
        "llm": {"engine_host": "auto", "engine_ports": list(engine_ports), "models": models},
        "edge": {"listen": f"127.0.0.1:{edge}"},
    }
    for name, changes in sections.items():
        whole[name] = whole.get(name, {}) | changes
    config = folder / "cohabit.yaml"
    config.write_text(yaml.safe_dump(whole))
    house = TcpHouse(folder, config, edge, listen, engine_ports)
    try:
        yield house
    finally:
        for service in ("edge", *SERVICES[::-1]):
            if service in house.processes:
                house.end(service, signal.SIGTERM)
