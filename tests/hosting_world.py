"""A model service over real engine processes and a real broker process, for tests of hosting."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from chassis.channel import call_metadata, open_channel
from chassis.errors import Fault
from chassis.process import child_env
from chassis.server import Server, service_name
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2 as pb
from cohabit.models.v1 import models_pb2_grpc as rpc
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from hosting.host import ModelHost
from hosting.hosted import Hosted
from hosting.leases import LeaseBook
from hosting.servicer import ModelServicer
from hosting.tenancy import Tenancy
from hosting.values import EngineHome, Kind, ModelSpec

DEADLINE_S = 15.0
_LIMITS = ("load_timeout_s", "silence_s", "drain_s", "removal_drain_s")
_OURS = ("EngineHandle", "Extras", "Landlord", "LeaseBook", "Retiring", "Transients")


async def until(condition: Callable[[], Any], what: str) -> float:
    """Poll a real external condition; the milliseconds it took."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  processes and brokers tell nobody
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None
    return (time.perf_counter() - began) * 1000


async def refusal(call: Awaitable[Any]) -> Fault:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(DEADLINE_S):
            await call
    return fault_of(caught.value, "model")


async def drained(call: Any) -> list[Any]:
    events = []
    async with asyncio.timeout(DEADLINE_S):
        while (event := await call.read()) is not grpc.aio.EOF:
            events.append(event)
    return events


def engine_pids(parent: int | None = None) -> set[int]:
    """Living engine processes of a parent."""
    found = set()
    for child in psutil.Process(parent).children():
        with suppress(psutil.NoSuchProcess):
            if "tests.toy_engine" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                found.add(child.pid)
    return found


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_engine() -> None:
    """SIGKILL for the one engine there is."""
    (pid,) = engine_pids()
    os.kill(pid, signal.SIGKILL)


@dataclass(slots=True)
class Described:
    """A source of one model, whose description a test may change."""

    spec: ModelSpec
    version: int = 0
    looks: int = 0

    def change(self, **fields: Any) -> None:
        self.spec, self.version = replace(self.spec, **fields), self.version + 1

    def stamp(self) -> int:
        return self.version

    def describe(self) -> ModelSpec:
        self.looks += 1
        return self.spec


@dataclass(frozen=True, slots=True)
class World:
    """A broker process, and a model service in this one."""

    host: ModelHost
    models: "rpc.ModelServiceAsyncStub"
    broker: "broker_pb2_grpc.BrokerServiceAsyncStub"
    leases: LeaseBook
    source: "Described"
    run_dir: Path

    async def lease(
        self,
        key: str = "toy",
        mib: int = 100,
        kind: "broker_pb2.LeaseKind.ValueType" = broker_pb2.LEASE_KIND_RESIDENT,
    ) -> str:
        request = broker_pb2.AcquireLeaseRequest(
            holder=f"test/{key}",
            kind=kind,
            tier=common_pb2.TIER_PAID,
            preferred_mib=mib,
        )
        answer = await self.broker.AcquireLease(request, timeout=DEADLINE_S, wait_for_ready=True)
        assert answer.HasField("lease"), answer
        return answer.lease.lease_id

    async def listed(self) -> list[broker_pb2.Lease]:
        request = broker_pb2.ListLeasesRequest()
        return list((await self.broker.ListLeases(request, timeout=DEADLINE_S)).leases)

    async def until_leases(self, condition: Callable[[list[broker_pb2.Lease]], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition(await self.listed()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def load(self, lease_id: str, key: str = "toy") -> Any:
        return self.models.LoadModel(pb.LoadModelRequest(key=key, lease_id=lease_id))

    async def ready(self, key: str = "toy") -> pb.Instance:
        events = await drained(self.load(await self.lease(key), key))
        instance = events[-1].instance
        assert isinstance(instance, pb.Instance)
        assert instance.state == pb.MODEL_STATE_READY
        return instance

    async def unload(self, key: str = "toy", **fields: Any) -> pb.Model:
        request = pb.UnloadModelRequest(key=key, **fields)
        return (await self.models.UnloadModel(request, timeout=DEADLINE_S)).model

    @property
    def toy(self) -> Hosted:
        """The one model there is."""
        return self.host.get("toy")

    @property
    def permits(self) -> set[str]:
        """What runs on the instances, as the service knows it."""
        return set().union(*(one.permits for one in self.toy.tenancies))

    def tenancy(self, instance: pb.Instance) -> Tenancy:
        (found,) = self.toy.named(instance.instance_id)
        return found

    def pid(self, instance: pb.Instance) -> int:
        engine = self.tenancy(instance).engine
        assert engine is not None
        return engine.process.process.pid

    def model(self, key: str = "toy") -> pb.Model:
        return next(model for model in self.host.messages() if model.key == key)

    def sockets(self) -> list[Path]:
        return list(self.run_dir.glob("engine-*"))

    @asynccontextmanager
    async def calling(self, instance: pb.Instance, prompt: str, permit: str) -> AsyncIterator[Any]:
        """A call at the engine."""
        async with open_channel(instance.address) as channel:
            stub: llm_pb2_grpc.LanguageModelServiceAsyncStub = (
                llm_pb2_grpc.LanguageModelServiceStub(channel)
            )
            call = stub.Generate(
                llm_pb2.GenerateRequest(prompt=prompt), metadata=call_metadata(permit)
            )
            try:
                yield call
            finally:
                call.cancel()

    @asynccontextmanager
    async def generating(
        self, instance: pb.Instance, prompt: str, permit: str = ""
    ) -> AsyncIterator[Any]:
        """A call at the engine, begun; under the permit named like the prompt unless told."""
        async with self.calling(instance, prompt, permit or f"permit-{prompt}") as call:
            first = await asyncio.wait_for(call.read(), DEADLINE_S)
            assert isinstance(first, llm_pb2.GenerateResponse)
            assert first.text == prompt
            yield call


@asynccontextmanager
async def broker_process(folder: Path) -> AsyncIterator[str]:
    config = folder / "cohabit.yaml"
    config.write_text(
        "run_dir: run\nstate_dir: state\nbroker:\n  device: simulated\n  capacity_mib: 1000\n"
        "  floor_mib: {paid: 0, sub: 0, free: 0, background: 0}\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "services.broker", "--config", str(config), env=child_env()
    )
    try:
        yield f"unix:{folder}/run/broker.sock"
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), DEADLINE_S)


@asynccontextmanager
async def world(
    folder: Path,
    *,
    key: str = "toy",
    ports: tuple[int, int] | None = None,
    instances: int = 1,
    renew_every_s: float = 0.05,
    described: type[Described] = Described,
    **engine: Any,
) -> AsyncIterator[World]:
    limits: dict[str, Any] = {"load_timeout_s": 30.0}
    limits |= {name: engine.pop(name) for name in _LIMITS if name in engine}
    home = EngineHome(
        service="test",
        module="tests.toy_engine",
        run_dir=folder / "run",
        log_level="info",
        ports=ports,
        **limits,
    )
    spec = ModelSpec(key, Kind.LANGUAGE, "chat", 100, max_instances=instances, engine=engine)
    source = described(spec)
    async with broker_process(folder) as address:
        leases = LeaseBook(address, "test", renew_every_s=renew_every_s)
        host = ModelHost(home, [source], leases)
        server = Server([service_name(pb, "ModelService")], drain_s=0.2)
        server.closing.push_async_callback(leases.close)
        server.closing.push_async_callback(host.close)
        rpc.add_ModelServiceServicer_to_server(ModelServicer(host), server.grpc)
        target = await server.start(f"unix:{folder}/model.sock")
        tasks = asyncio.all_tasks()
        try:
            async with open_channel(target) as channel, open_channel(address) as to_broker:
                yield World(
                    host,
                    rpc.ModelServiceStub(channel),
                    broker_pb2_grpc.BrokerServiceStub(to_broker),
                    leases,
                    source,
                    folder / "run",
                )
        finally:
            await server.stop()
        assert not engine_pids()
        assert not list((folder / "run").glob("engine-*"))
        names = {t.get_coro().__qualname__ for t in asyncio.all_tasks() - tasks}  # type: ignore[union-attr]
        assert not {n for n in names if n.startswith(_OURS)}


class Grants(scheduler_pb2_grpc.SchedulerServiceServicer):
    """A scheduler that grants everything at once, at the engine that it is told."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.asked: list[scheduler_pb2.AdmitRequest] = []
        self.ended = 0

    async def Admit(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        granted = scheduler_pb2.AdmitResponse.Granted(
            permit_id=f"granted-{len(self.asked)}",
            address=self.addresses[request.model],
            model_key=request.model,
        )
        try:
            yield scheduler_pb2.AdmitResponse(granted=granted)
            await asyncio.Event().wait()
        finally:
            self.ended += 1
