"""A whole house as a process, `cohabit up`, with its sockets in a folder of its own.

What is measured, who asks and what else is wanted from a house stay with whoever starts it.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import yaml

from chassis.process import child_env

_READY_S = 30.0
_STOP_S = 15.0


@dataclass(frozen=True, slots=True)
class House:
    """A running house."""

    folder: Path
    port: int
    pid: int
    """Of the launcher, of which all its processes descend."""

    @property
    def url(self) -> str:
        """Of its edge."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def scheduler(self) -> str:
        """The scheduler's gRPC target."""
        return self.address("scheduler")

    def address(self, service: str) -> str:
        """The gRPC target of a service."""
        return f"unix:{self.folder}/run/{service}.sock"


def free_port() -> int:
    """A port nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def running(
    folder: Path,
    models_dir: Path,
    models: Mapping[str, Mapping[str, Any]],
    permits: int = 4,
    edge: Mapping[str, Any] = MappingProxyType({}),
    others: Mapping[str, Any] = MappingProxyType({}),
) -> AsyncIterator[House]:
    """A house with these language models until the end of the block, these settings of its edge
    and these `others` sections; all else as shipped.

    Raises RuntimeError, with the end of its log, when it does not come up.
    """
    port = free_port()
    config = {
        "run_dir": "run",
        "state_dir": "state",
        "models_dir": str(models_dir),
        "broker": {"device": "cpu"},
        "scheduler": {"permits": permits},
        "llm": {"models": {key: dict(model) for key, model in models.items()}},
        "edge": {"listen": f"127.0.0.1:{port}", **edge},
        **others,
    }
    path, log = folder / "cohabit.yaml", folder / "house.log"
    path.write_text(yaml.safe_dump(config))
    with log.open("wb") as out:
        launcher = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "cli", "up", "--config", str(path),
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, env=child_env(),
        )  # fmt: skip
    house = House(folder, port, launcher.pid)
    try:
        if not await _becomes_ready(house, launcher):
            raise RuntimeError(f"the house did not come up:\n{_end_of(log)}")
        yield house
    finally:
        await _stop(launcher)


async def _becomes_ready(house: House, launcher: asyncio.subprocess.Process) -> bool:
    url = f"{house.url}/readyz"
    try:
        async with asyncio.timeout(_READY_S), httpx.AsyncClient() as client:
            while launcher.returncode is None:
                try:
                    if (await client.get(url)).status_code == 200:
                        return True
                except httpx.HTTPError:
                    pass  # not there yet
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass
    return False


def _end_of(log: Path) -> str:
    return log.read_text()[-4000:]


async def _stop(launcher: asyncio.subprocess.Process) -> None:
    try:
        if launcher.returncode is None:
            launcher.send_signal(signal.SIGINT)
        async with asyncio.timeout(_STOP_S):
            await launcher.wait()
    except TimeoutError:
        launcher.kill()
        await launcher.wait()
