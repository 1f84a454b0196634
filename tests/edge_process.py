"""The edge as a process of its own, `python -P -m edge`, for tests of how it lives and ends."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from chassis.process import child_env
from edge.workers.child import SLOT_ENV

READY_S = 60.0
DEADLINE_S = 15.0


@dataclass
class EdgeProcess:
    """One that runs; `log`: the lines of it and of its workers."""

    url: str
    process: asyncio.subprocess.Process
    log: list[str] = field(default_factory=list)

    @property
    def host_port(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def workers(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def worker(self, slot: int) -> psutil.Process:
        for process in self.workers():
            if process.environ()[SLOT_ENV] == str(slot):
                return process
        raise LookupError(slot)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def ended(self, within_s: float = DEADLINE_S) -> int:
        async with asyncio.timeout(within_s):
            return await self.process.wait()

    def client(self, **settings: Any) -> httpx.AsyncClient:
        limits = {"base_url": self.url, "timeout": DEADLINE_S, "trust_env": False}
        return httpx.AsyncClient(**{**limits, **settings})


@asynccontextmanager
async def edge_process(
    folder: Path, scheduler: str, engine: str, services: Sequence[str] = ("llm",), **edge: Any
) -> AsyncIterator[EdgeProcess]:
    """An edge with the peers at these addresses, ready; killed at the end if it still runs."""
    whole = {
        "run_dir": "run",
        "addresses": {"scheduler": scheduler, **dict.fromkeys(("broker", *services), engine)},
        **{service: {} for service in services},
        "edge": {"listen": "127.0.0.1:0", **edge},
    }
    config = _written(folder, whole)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "edge", "--config", str(config),
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=child_env() | {"COHABIT_LOG": ""}, cwd=folder,
    )  # fmt: skip
    assert process.stderr is not None
    lines: list[str] = []
    serving: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    reading = asyncio.create_task(_read(process.stderr, lines, serving))
    try:
        async with asyncio.timeout(READY_S):
            edge_ = EdgeProcess(await serving, process, lines)
            await _ready(edge_, edge.get("workers", 1))
        assert not any('"bug"' in line for line in lines), lines
        yield edge_
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


def _written(folder: Path, whole: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    config = folder / "cohabit.yaml"
    config.write_text(yaml.safe_dump(whole))
    return config


async def _read(
    stream: asyncio.StreamReader, lines: list[str], serving: "asyncio.Future[str]"
) -> None:
    async for raw in stream:
        line = raw.decode()
        lines.append(line)
        if '"serving"' in line and not serving.done():
            serving.set_result(yaml.safe_load(line)["address"])
    if not serving.done():
        serving.set_exception(AssertionError("".join(lines)))


async def _ready(edge: EdgeProcess, workers: int) -> None:
    """Every worker takes connections: a new connection each, until enough have answered well."""
    async with edge.client(headers={"connection": "close"}) as client:
        while True:
            try:
                health = (await client.get("/health")).json()
            except httpx.HTTPError:
                continue
            if health["status"] == "ok":
                return
            assert workers > 1 or edge.process.returncode is None, edge.log
            await asyncio.sleep(0.02)  # a poll of another process, bounded by the caller
