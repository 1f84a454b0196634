"""BrokerService over the wire: leases and devices, over a server on a Unix socket."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.server import Server, service_name
from chassis.simulated_card import SimulatedCard
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2 as pb
from cohabit.broker.v1 import broker_pb2_grpc as rpc
from cohabit.common.v1 import common_pb2
from services.broker.config import BrokerConfig
from services.broker.device_simulated import SimulatedDevice, Visit
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


def card_in(run_dir: Path) -> SimulatedCard:
    return SimulatedCard(run_dir / "sim0.card")


@asynccontextmanager
async def broker(
    tmp_path: Path,
    visits: Sequence[Visit] = (),
    clock: Callable[[], int] | None = None,
    **config: Any,
) -> AsyncIterator["Stub"]:
    own = BrokerConfig.model_validate(
        {"device": "simulated", "capacity_mib": 1000, "floor_mib": FLOORS} | config
    )
    device = SimulatedDevice(card_in(tmp_path), 1000, visits, began_ms=0)
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


async def test_a_lease_from_grant_to_release(tmp_path: Path) -> None:
    async with broker(tmp_path) as stub:
        lease = (await stub.AcquireLease(ask(100, request_id="r"))).lease
        assert (lease.holder, lease.device, lease.granted_mib) == ("llm/m", "sim0", 100)
        assert lease.expires_unix_ms - lease.granted_unix_ms == 30_000
        assert not lease.renewed_unix_ms
        assert (await stub.AcquireLease(ask(100, request_id="r"))).lease == lease

        renewal = pb.RenewLeaseRequest(lease_id=lease.lease_id, materialised_mib=60, ttl_ms=90_000)
        renewed = (await stub.RenewLease(renewal)).lease
        assert renewed.materialised_mib == 60
        assert renewed.renewed_unix_ms >= lease.granted_unix_ms
        assert renewed.expires_unix_ms >= lease.granted_unix_ms + 90_000
        assert list((await stub.ListLeases(pb.ListLeasesRequest())).leases) == [renewed]
        other = pb.ListLeasesRequest(holder_prefix="matte/")
        assert not (await stub.ListLeases(other)).leases

        release = pb.ReleaseLeaseRequest(lease_id=lease.lease_id)
        await stub.ReleaseLease(release)
        await stub.ReleaseLease(release)
        assert not (await stub.ListLeases(pb.ListLeasesRequest())).leases
        assert (await refusal(stub.RenewLease(renewal))).reason is Reason.LEASE_NOT_FOUND


async def test_denials_are_answers(tmp_path: Path) -> None:
    async with broker(tmp_path) as stub:
        await stub.AcquireLease(ask(900))
        full = (await stub.AcquireLease(ask(100))).denial
        assert (full.reason, full.headroom_mib, full.ceiling_mib) == ("no_headroom", 90, 990)
        assert "other leases must end first" in full.message
        ever = (await stub.AcquireLease(ask(991))).denial
        assert (ever.reason, ever.ceiling_mib) == ("never_fits", 990)
        some = (await stub.AcquireLease(ask(500, minimum_mib=50))).lease
        assert some.granted_mib == 90


async def test_device_memory_tells_the_truth(tmp_path: Path) -> None:
    async with broker(tmp_path, reserve_mib=60, reserves={"desktop": 40}) as stub:
        lease = (await stub.AcquireLease(ask(200))).lease
        card_in(tmp_path).allocate("llm/m", 50)
        await stub.RenewLease(pb.RenewLeaseRequest(lease_id=lease.lease_id, materialised_mib=50))
        (device,) = (await stub.GetDeviceMemory(pb.GetDeviceMemoryRequest())).devices
        assert (device.device, device.kind, device.reachable) == (
            "sim0",
            pb.DEVICE_KIND_SIMULATED,
            True,
        )
        assert (device.total_mib, device.free_mib, device.floor_mib) == (1000, 950, 140)
        assert (device.leased_mib, device.unmaterialised_mib, device.foreign_mib) == (200, 150, 0)
        assert list(device.reserves) == [pb.Reserve(name="desktop", reserved_mib=40)]
        use = pb.ProcessUse(pid=os.getpid(), used_mib=50, name="llm/m")
        assert list(device.processes) == [use]
        assert {h.tier: h.headroom_mib for h in device.headroom} == {
            common_pb2.TIER_PAID: 690,
            common_pb2.TIER_SUB: 680,
            common_pb2.TIER_FREE: 670,
            common_pb2.TIER_BACKGROUND: 660,
        }
        card_in(tmp_path).allocate("a stranger", 300)
        (device,) = (await stub.GetDeviceMemory(pb.GetDeviceMemoryRequest())).devices
        assert (device.free_mib, device.foreign_mib) == (650, 300)
        assert device.headroom[-1].headroom_mib == 390
        card_in(tmp_path).free("a stranger")
        card_in(tmp_path).free("llm/m")


async def test_a_lease_leaves_what_it_was_told_to(tmp_path: Path) -> None:
    async with broker(tmp_path) as stub:
        lease = (await stub.AcquireLease(ask(900, minimum_mib=500, leave_mib=200))).lease
        assert lease.granted_mib == 790
        full = (await stub.AcquireLease(ask(50, leave_mib=151))).denial
        assert (full.reason, full.headroom_mib) == ("no_headroom", 200)
        assert full.message.startswith("50 MiB, with 151 MiB left over, are asked for and 200 MiB")
        ever = (await stub.AcquireLease(ask(500, leave_mib=491))).denial
        assert ever.reason == "never_fits"
        assert "500 MiB, with 491 MiB left over, can never be lent" in ever.message


async def test_a_foreign_tenant_takes_what_is_free_and_leaves_what_is_promised(
    tmp_path: Path,
) -> None:
    now = 0
    visits = [Visit("desktop", 200, 0, None), Visit("game", 5000, 1000, 3000)]
    async with broker(tmp_path, visits, lambda: now) as stub:
        lease = (await stub.AcquireLease(ask(300))).lease
        now = 1000
        assert (await stub.AcquireLease(ask(1))).denial.reason == "no_headroom"
        (device,) = (await stub.GetDeviceMemory(pb.GetDeviceMemoryRequest())).devices
        assert (device.foreign_mib, device.free_mib, device.unmaterialised_mib) == (700, 300, 300)
        assert [(x.name, x.used_mib) for x in device.processes] == [
            ("foreign/game", 500),
            ("foreign/desktop", 200),
        ]
        card = card_in(tmp_path)
        card.allocate("llm/m", lease.granted_mib)  # what was lent is there
        now = 3000
        (device,) = (await stub.GetDeviceMemory(pb.GetDeviceMemoryRequest())).devices
        assert (device.free_mib, card.out_of_memory_count) == (500, 0)
        card.free("llm/m")


async def test_a_card_that_is_gone_is_unreachable(tmp_path: Path) -> None:
    async with broker(tmp_path) as stub:
        (tmp_path / "sim0.card").unlink()
        fault = await refusal(stub.AcquireLease(ask(1)))
        assert fault.reason is Reason.DEVICE_UNREACHABLE
        assert fault.retry_after_s is not None


async def test_the_default_tier_is_applied_and_the_ttl_clamped(tmp_path: Path) -> None:
    async with broker(tmp_path, default_tier="background", max_lease_ttl_s=60) as stub:
        lease = (await stub.AcquireLease(ask(tier=0, ttl_ms=3_600_000))).lease
        assert lease.tier == common_pb2.TIER_BACKGROUND
        assert lease.expires_unix_ms - lease.granted_unix_ms == 60_000


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (ask(holder=""), "holder must be"),
        (ask(holder="llm"), "holder must be"),
        (ask(holder="llm/" + "x" * 300), "at most 256"),
        (ask(kind=0), "kind is missing"),
        (ask(kind=9), "kind is missing"),
        (ask(tier=9), "tier 9 is unknown"),
        (ask(0), "preferred_mib is missing"),
        (ask(1 << 63), "the unit is MiB"),
        (ask(10, minimum_mib=11), "minimum_mib 11 exceeds preferred_mib 10"),
        (ask(request_id="x" * 300), "request_id is longer"),
        (ask(leave_mib=1 << 63), "leave_mib 9223372036854775808 is beyond any device"),
    ],
)
async def test_bad_wishes(tmp_path: Path, request_: pb.AcquireLeaseRequest, complaint: str) -> None:
    async with broker(tmp_path) as stub:
        fault = await refusal(stub.AcquireLease(request_))
        assert fault.reason is Reason.INVALID_REQUEST
        assert complaint in fault.message


async def test_other_refusals(tmp_path: Path) -> None:
    async with broker(tmp_path, max_leases=1) as stub:
        unknown = await refusal(stub.AcquireLease(ask(device="gpu7")))
        assert unknown.reason is Reason.DEVICE_NOT_FOUND
        assert "sim0" in unknown.message
        for call in (
            stub.RenewLease(pb.RenewLeaseRequest()),
            stub.RenewLease(pb.RenewLeaseRequest(lease_id="x", materialised_mib=1 << 63)),
            stub.RenewLease(pb.RenewLeaseRequest(lease_id="x", shrink_to_mib=1 << 63)),
            stub.WatchPressure(pb.WatchPressureRequest(holder_prefix="x" * 300)).read(),
            stub.ReleaseLease(pb.ReleaseLeaseRequest()),
        ):
            assert (await refusal(call)).reason is Reason.INVALID_REQUEST
        await stub.AcquireLease(ask())
        full = await refusal(stub.AcquireLease(ask()))
        assert (full.reason, full.retry_after_s) == (Reason.SATURATED, 1.0)


async def test_host_memory(tmp_path: Path) -> None:
    async with broker(tmp_path, warm_floor_mib=7) as stub:
        host = await stub.GetHostMemory(pb.GetHostMemoryRequest())
        assert 0 < host.available_mib <= host.total_mib
        assert host.floor_mib == 7


async def test_two_hundred_at_once_never_over_grant(tmp_path: Path) -> None:
    async with broker(tmp_path) as stub:
        answers = await asyncio.gather(*(stub.AcquireLease(ask(33)) for _ in range(200)))
        granted = [a.lease.granted_mib for a in answers if a.WhichOneof("outcome") == "lease"]
        assert granted == [33] * 30
