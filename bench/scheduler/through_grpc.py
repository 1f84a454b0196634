"""The scheduler as a process, asked over gRPC; beside it the same server without a scheduler.

Of the house only the scheduler runs. Models are reported, and starts and ends told, by a stand-in
(see `stand_in`) in the callers' process; the broker is not needed while every model is resident.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
import psutil
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.scheduler.script import MODELS
from bench.scheduler.stand_in import StandIn, standing_in
from chassis.channel import open_channel
from chassis.process import child_env
from cohabit.common.v1 import common_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc as rpc
from services.scheduler.core.values import Tier

_READY_S = 15.0
_STOP_S = 5.0
_CALL_S = 120.0


class GrpcDoor:
    """See `Door`: an Admit stream for each, over as many connections as there are stubs."""

    def __init__(
        self, stubs: "list[rpc.SchedulerServiceAsyncStub]", stand_in: StandIn | None
    ) -> None:
        self._stubs = cycle(stubs)
        self._stand_in = stand_in

    @asynccontextmanager
    async def admitted(self, tier: Tier, model: str, key: str) -> AsyncIterator[None]:
        """See `Door`."""
        request = pb.AdmitRequest(
            model=model, tier=common_pb2.Tier.ValueType(tier), fairness_key=key
        )
        call = next(self._stubs).Admit(request, timeout=_CALL_S)
        try:
            response = await call.read()
            while isinstance(response, pb.AdmitResponse) and not response.HasField("granted"):
                response = await call.read()
            if not isinstance(response, pb.AdmitResponse):
                raise RuntimeError("the scheduler closed a stream before it granted")
            self._tell(response.granted, started=True)
            try:
                yield
            finally:
                self._tell(response.granted, started=False)
        finally:
            call.cancel()

    def _tell(self, granted: pb.AdmitResponse.Granted, *, started: bool) -> None:
        if self._stand_in is not None:
            self._stand_in.moved(granted.permit_id, granted.model_key, started=started)


class Served:
    """A process that admits."""

    def __init__(self, address: str, pid: int, stand_in: StandIn | None) -> None:
        self._address = address
        self._process = psutil.Process(pid)
        self._stand_in = stand_in

    @property
    def cpu_s(self) -> float:
        """What it has used."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    @property
    def asked(self) -> int:
        """How often the engine was asked about a permit."""
        return self._stand_in.asked if self._stand_in is not None else 0

    @asynccontextmanager
    async def door(self, connections: int) -> AsyncIterator[GrpcDoor]:
        """A way in over so many connections, until the end of the block."""
        async with AsyncExitStack() as stack:
            channels = [open_channel(self._address) for _ in range(connections)]
            for channel in channels:
                await stack.enter_async_context(channel)
            yield GrpcDoor([rpc.SchedulerServiceStub(c) for c in channels], self._stand_in)


@asynccontextmanager
async def scheduler(folder: Path, slots: int) -> AsyncIterator[Served]:
    """`python -m services.scheduler`, serving, until the end of the block."""
    lanes = {model: {"cost": cost} for model, cost in MODELS.items()}
    config = {
        "run_dir": "run",
        "state_dir": "state",
        "scheduler": {"permits": slots, "lanes": lanes, "workers": ["llm"]},
    }
    (folder / "run").mkdir(parents=True)
    path = folder / "cohabit.yaml"
    path.write_text(yaml.safe_dump(config))
    address = f"unix:{folder}/run/scheduler.sock"
    async with standing_in(f"unix:{folder}/run/llm.sock", slots) as stand_in:
        arguments = ("services.scheduler", "--config", str(path))
        async with _process(folder, address, *arguments) as pid:
            yield Served(address, pid, stand_in)


@asynccontextmanager
async def bare(folder: Path) -> AsyncIterator[Served]:
    """The same frame, granting at once. `folder` is there."""
    address = f"unix:{folder}/bare.sock"
    async with _process(folder, address, "bench.scheduler.bare_admit", address) as pid:
        yield Served(address, pid, None)


@asynccontextmanager
async def _process(folder: Path, address: str, *arguments: str) -> AsyncIterator[int]:
    """`python -m …` until the end of the block, once it serves at `address`."""
    log = folder / "log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=child_env(),
        )  # fmt: skip
    try:
        if not await _serves(address):
            raise RuntimeError(f"{arguments[0]} does not serve:\n{log.read_text()[-2000:]}")
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _serves(address: str) -> bool:
    """Health is on. The service that is asked is up before it is ready: it is asked again."""
    async with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        asking = health_pb2.HealthCheckRequest()
        try:
            async with asyncio.timeout(_READY_S):
                async for told in stub.Watch(asking, wait_for_ready=True):
                    if told.status == health_pb2.HealthCheckResponse.SERVING:
                        return True
        except (TimeoutError, grpc.aio.AioRpcError):
            pass
    return False
