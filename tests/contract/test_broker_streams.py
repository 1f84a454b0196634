"""BrokerService's streams over the wire: pressure on holders, files warmed."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from prometheus_client import REGISTRY

from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.server import Server, service_name
from chassis.simulated_card import SimulatedCard
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2 as pb
from cohabit.broker.v1 import broker_pb2_grpc as rpc
from cohabit.common.v1 import common_pb2
from services.broker.config import BrokerConfig
from services.broker.device_simulated import SimulatedDevice
from services.broker.journal import Journal
from services.broker.servicer import BrokerServicer
from services.broker.shell import Shell
from services.broker.warming import Warmer

if TYPE_CHECKING:
    Stub = rpc.BrokerServiceAsyncStub

FLOORS = {"paid": 10, "sub": 20, "free": 30, "background": 40}


def ask(mib: int = 100, **changes: Any) -> pb.AcquireLeaseRequest:
    fields: dict[str, Any] = {
        "holder": "llm/m",
        "kind": pb.LEASE_KIND_RESIDENT,
        "tier": common_pb2.TIER_PAID,
        "preferred_mib": mib,
    }
    return pb.AcquireLeaseRequest(**(fields | changes))


@asynccontextmanager
async def broker(
    tmp_path: Path, clock: Callable[[], int] | None = None, **config: Any
) -> AsyncIterator["Stub"]:
    own = BrokerConfig.model_validate(
        {"device": "simulated", "capacity_mib": 1000, "floor_mib": FLOORS} | config
    )
    device = SimulatedDevice(SimulatedCard(tmp_path / "sim0.card"), 1000, [], began_ms=0)
    shell = Shell(own, [device], Journal(tmp_path / "state"), clock=clock)
    shell.start()
    warmer = Warmer(tmp_path / "models", own.warm_floor_of)
    server = Server([service_name(pb, "BrokerService")], drain_s=1.0)
    server.leaving += [shell.watchers.close, warmer.close]
    server.closing.push_async_callback(shell.close)
    rpc.add_BrokerServiceServicer_to_server(BrokerServicer(shell, warmer, own), server.grpc)
    target = await server.start(f"unix:{tmp_path}/b.sock")
    try:
        async with open_channel(target) as channel:
            yield rpc.BrokerServiceStub(channel)
    finally:
        await server.stop()


async def refusal(call: Awaitable[Any]) -> Fault:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    fault = fault_of(caught.value, "broker")
    assert caught.value.code() is fault.row.code
    return fault


async def test_a_refusal_asks_lower_tiers_to_shrink_and_what_they_give_is_lent(
    tmp_path: Path,
) -> None:
    async with broker(tmp_path) as stub:
        stream = stub.WatchPressure(pb.WatchPressureRequest(holder_prefix="llm/"))
        await stream.initial_metadata()
        low = (await stub.AcquireLease(ask(600, tier=common_pb2.TIER_FREE))).lease
        high = (await stub.AcquireLease(ask(200))).lease

        same = (await stub.AcquireLease(ask(300, tier=common_pb2.TIER_FREE))).denial
        assert same.reason == "no_headroom"  # and asks nobody: they are of the same tier or above
        denied = (await stub.AcquireLease(ask(280, leave_mib=10))).denial
        told = await asyncio.wait_for(stream.read(), 5)
        assert isinstance(told, pb.WatchPressureResponse)
        assert told == pb.WatchPressureResponse(
            lease_id=low.lease_id,
            shrink_mib=290 - denied.headroom_mib,
            refused_tier=common_pb2.TIER_PAID,
        )
        renewal = pb.RenewLeaseRequest(
            lease_id=low.lease_id, shrink_to_mib=low.granted_mib - told.shrink_mib
        )
        assert (await stub.RenewLease(renewal)).lease.granted_mib == 500
        lease = (await stub.AcquireLease(ask(280, leave_mib=10))).lease
        assert lease.granted_mib == 280
        listed = (await stub.ListLeases(pb.ListLeasesRequest())).leases
        assert [x.granted_mib for x in listed] == [500, high.granted_mib, 280]
        stream.cancel()


async def test_a_storm_of_refusals_is_one_message_a_second(tmp_path: Path) -> None:
    def messages() -> float:
        return REGISTRY.get_sample_value("cohabit_pressure_messages_total") or 0.0

    now, before = 0, messages()
    async with broker(tmp_path, lambda: now) as stub:
        stream = stub.WatchPressure(pb.WatchPressureRequest())
        await stream.initial_metadata()
        await stub.AcquireLease(ask(900, tier=common_pb2.TIER_FREE))
        for now in (0, 999, 1000):
            await asyncio.gather(*(stub.AcquireLease(ask(300)) for _ in range(100)))
            assert messages() == before + (1 if now < 1000 else 2)
        stream.cancel()


async def test_files_are_warmed_and_it_shows(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    sizes = {"large.gguf": (64 << 20) + 5, "empty.gguf": 0, "small.gguf": 1000}
    for name, size in sizes.items():
        (models / name).write_bytes(b"x" * size)
    async with broker(tmp_path, warm_floor_mib=0) as stub:
        request = pb.WarmFilesRequest(paths=[str(models / name) for name in sizes])
        last = {x.path: x async for x in stub.WarmFiles(request)}
        assert [(x.done_bytes, x.total_bytes, x.stopped_short) for x in last.values()] == [
            (size, size, False) for size in sizes.values()
        ]
        host = await stub.GetHostMemory(pb.GetHostMemoryRequest())
        assert list(host.warming) == list(last.values())


async def test_warming_stops_by_itself_when_memory_is_short(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name in ("a", "b"):
        (tmp_path / "models" / name).write_bytes(b"x" * 1000)
    paths = [f"{tmp_path}/models/a", f"{tmp_path}/models/b"]
    async with broker(tmp_path, warm_floor_mib=1 << 40) as stub:
        last = {x.path: x async for x in stub.WarmFiles(pb.WarmFilesRequest(paths=paths))}
    assert list(last.values()) == [
        pb.WarmFilesResponse(path=path, total_bytes=1000, stopped_short=True) for path in paths
    ]


async def test_what_may_not_be_warmed_is_refused_by_name(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (tmp_path / "secret").write_text("x")
    (models / "link").symlink_to(tmp_path / "secret")
    (models / "circle").symlink_to(models / "circle")
    os.mkfifo(models / "fifo")
    cases = {
        "models/x": "not an absolute path",
        f"{tmp_path}/secret": "is not below",
        f"{models}/../secret": "is not below",
        f"{models}/link": "is not below",
        f"{models}/fifo": "is not a file",
        f"{models}": "is not a file",
        f"{models}/gone": "There is no file",
        f"{models}/{'x' * 300}": "cannot be read",
        f"{models}/circle": "its links go in a circle",
    }
    async with broker(tmp_path) as stub:
        for path, complaint in cases.items():
            fault = await refusal(stub.WarmFiles(pb.WarmFilesRequest(paths=[path])).read())
            assert complaint in fault.message, path
            missing = "no file" in complaint
            assert (fault.reason is Reason.FILE_NOT_FOUND) == missing
        for paths, complaint in (([], "paths is empty"), (["/x"] * 257, "at most 256")):
            fault = await refusal(stub.WarmFiles(pb.WarmFilesRequest(paths=paths)).read())
            assert complaint in fault.message
