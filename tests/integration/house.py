"""A whole house for tests: `cohabit up` as a process, on sockets in a folder of its own."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from chassis.channel import open_channel
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.tiny_gguf import make_tiny_gguf

ROOT = Path(__file__).parents[2]
REAL_MODEL = ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf"


@dataclass(frozen=True)
class House:
    """A running house."""

    folder: Path
    port: int
    launcher: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, service: str) -> str:
        return f"unix:{self.folder}/run/{service}.sock"

    def processes(self) -> list[psutil.Process]:
        """Everything the launcher started, and what that started; nothing once it is gone."""
        if self.launcher.poll() is not None:
            return []
        return psutil.Process(self.launcher.pid).children(recursive=True)

    def process(self, module: str) -> psutil.Process:
        """The one process that runs `-m module`."""
        for process in self.processes():
            try:
                if module in process.cmdline():
                    return process
            except psutil.Error:  # it ended while we looked
                continue
        raise LookupError(module)

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator["scheduler_pb2_grpc.SchedulerServiceAsyncStub"]:
        async with open_channel(self.address("scheduler")) as channel:
            yield scheduler_pb2_grpc.SchedulerServiceStub(channel)

    async def status(self) -> scheduler_pb2.Status:
        async with self.scheduler() as stub:
            answer = await stub.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=5)
            return answer.status

    async def models(self) -> dict[str, models_pb2.Model]:
        async with self.scheduler() as stub:
            answer = await stub.ListModels(scheduler_pb2.ListModelsRequest(), timeout=5)
            return {model.key: model for model in answer.models}

    async def leases(self) -> list[broker_pb2.Lease]:
        async with open_channel(self.address("broker")) as channel:
            stub: broker_pb2_grpc.BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(
                channel
            )
            answer = await stub.ListLeases(broker_pb2.ListLeasesRequest(), timeout=5)
            return list(answer.leases)


async def until(
    true: Callable[[], Awaitable[bool]], within_s: float = 10.0, what: str = "it"
) -> float:
    """Ask again and again until `true`; how many seconds that took. Fails after `within_s`."""
    began = time.monotonic()
    while not await true():
        if time.monotonic() - began > within_s:
            raise AssertionError(f"{what} did not come true within {within_s} s")
        await asyncio.sleep(0.002)  # a poll of another process, bounded above
    return time.monotonic() - began


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def configuration(folder: Path, port: int, **sections: dict[str, object]) -> Path:
    """A cohabit.yaml with the tiny model, the slow one and the real one, and `sections` over it."""
    (folder / "models").mkdir(exist_ok=True)
    tiny = folder / "models" / "tiny.gguf"
    if not tiny.exists():
        make_tiny_gguf(tiny, context=4096)
    whole: dict[str, Any] = {
        "run_dir": "run",
        "state_dir": "state",
        "models_dir": "models",
        "broker": {"device": "cpu"},
        "scheduler": {"permits": 4},
        "llm": {
            "models": {
                "tiny": {"path": "tiny.gguf", "places": 4, "context_tokens": 2048},
                "smollm2": {"path": str(REAL_MODEL), "places": 4, "context_tokens": 2048},
            }
        },
        "edge": {"listen": f"127.0.0.1:{port}", "keepalive_s": 0.2},
    }
    for name, changes in sections.items():
        whole[name] = whole.get(name, {}) | changes
    path = folder / "cohabit.yaml"
    path.write_text(yaml.safe_dump(whole))
    return path


@contextmanager
def running(folder: Path, **sections: dict[str, object]) -> Iterator[House]:
    """`cohabit up` until the end of the block; fails if anything outlives it."""
    port = free_port()
    with started(configuration(folder, port, **sections), port) as house:
        yield house


@contextmanager
def started(path: Path, port: int) -> Iterator[House]:
    """As `running`, with a configuration that stands; its `run_dir` is `run`."""
    folder = path.parent
    log = folder / "house.log"
    with log.open("wb") as out:
        launcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "cli", "up", "--config", str(path)],
            stdout=out,
            stderr=out,
            cwd=folder,
            env={**os.environ, "COHABIT_PARENT_PID": str(os.getpid())},
        )
    house = House(folder, port, launcher, log)
    children: list[psutil.Process] = []
    try:
        _await_ready(house)
        yield house
        children = house.processes()
    finally:
        launcher.send_signal(signal.SIGINT)
        try:
            launcher.wait(30)
        finally:
            launcher.kill()
            launcher.wait()
    _, alive = psutil.wait_procs(children, timeout=1)
    assert not alive, f"outlived the launcher: {[p.cmdline() for p in alive]}"


def _await_ready(house: House) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{house.url}/readyz", timeout=1).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        if house.launcher.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"the house did not come up:\n{house.log.read_text()}")
