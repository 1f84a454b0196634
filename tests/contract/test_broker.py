"""BrokerService over the wire: a server on a Unix socket, and whole broker processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.server import Server, service_name
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2 as pb
from cohabit.broker.v1 import broker_pb2_grpc as rpc
from cohabit.common.v1 import common_pb2
from services.broker.config import BrokerConfig
from services.broker.device_simulated import SimulatedDevice
from services.broker.journal import Journal
from services.broker.servicer import BrokerServicer
from services.broker.shell import Shell

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
async def broker(tmp_path: Path, **config: Any) -> AsyncIterator["Stub"]:
    own = BrokerConfig.model_validate(
        {"device": "simulated", "capacity_mib": 1000, "floor_mib": FLOORS} | config
    )
    shell = Shell(own, [SimulatedDevice(1000)], Journal(tmp_path / "state"))
    shell.start()
    server = Server([service_name(pb, "BrokerService")], drain_s=1.0)
    server.closing.push_async_callback(shell.close)
    rpc.add_BrokerServiceServicer_to_server(BrokerServicer(shell, own), server.grpc)
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
        assert (await stub.AcquireLease(ask(100, request_id="r"))).lease == lease

        renewal = pb.RenewLeaseRequest(lease_id=lease.lease_id, materialised_mib=60, ttl_ms=90_000)
        renewed = (await stub.RenewLease(renewal)).lease
        assert renewed.materialised_mib == 60
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
    async with broker(tmp_path, reserve_mib=100) as stub:
        lease = (await stub.AcquireLease(ask(200))).lease
        await stub.RenewLease(pb.RenewLeaseRequest(lease_id=lease.lease_id, materialised_mib=50))
        (device,) = (await stub.GetDeviceMemory(pb.GetDeviceMemoryRequest())).devices
        assert (device.device, device.kind, device.reachable) == (
            "sim0",
            pb.DEVICE_KIND_SIMULATED,
            True,
        )
        assert (device.total_mib, device.free_mib, device.floor_mib) == (1000, 950, 140)
        assert (device.leased_mib, device.unmaterialised_mib, device.foreign_mib) == (200, 150, 0)
        assert {h.tier: h.headroom_mib for h in device.headroom} == {
            common_pb2.TIER_PAID: 690,
            common_pb2.TIER_SUB: 680,
            common_pb2.TIER_FREE: 670,
            common_pb2.TIER_BACKGROUND: 660,
        }


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
            stub.ReleaseLease(pb.ReleaseLeaseRequest()),
        ):
            assert (await refusal(call)).reason is Reason.INVALID_REQUEST
        await stub.AcquireLease(ask())
        full = await refusal(stub.AcquireLease(ask()))
        assert (full.reason, full.retry_after_s) == (Reason.SATURATED, 1.0)


async def test_what_is_not_built_says_so_by_name(tmp_path: Path) -> None:
    async with broker(tmp_path) as stub:
        for call, name in (
            (stub.WatchPressure(pb.WatchPressureRequest()), "WatchPressure"),
            (stub.WarmFiles(pb.WarmFilesRequest()), "WarmFiles"),
        ):
            fault = await refusal(call.read())
            assert fault.reason is Reason.NOT_IMPLEMENTED
            assert name in fault.message


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


# --- whole processes ---


@contextmanager
def process(tmp_path: Path, section: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    config = tmp_path / "cohabit.yaml"
    config.write_text(f"run_dir: r\nstate_dir: s\nbroker: {section}\n")
    command = [sys.executable, "-P", "-m", "services.broker", "--config", str(config)]
    child = subprocess.Popen(command, env=os.environ | env, cwd=tmp_path)
    try:
        yield child
    finally:
        child.kill()
        child.wait(10)


async def until(tmp_path: Path, good: Callable[[pb.DeviceMemory], bool]) -> pb.DeviceMemory:
    """The first device, once it is as wanted."""

    async def poll() -> pb.DeviceMemory:
        async with open_channel(f"unix:{tmp_path}/r/broker.sock") as channel:
            stub: Stub = rpc.BrokerServiceStub(channel)
            while True:
                answer = await stub.GetDeviceMemory(
                    pb.GetDeviceMemoryRequest(), wait_for_ready=True, timeout=20
                )
                if good(answer.devices[0]):
                    return answer.devices[0]

    return await asyncio.wait_for(poll(), 30)


@asynccontextmanager
async def dial(tmp_path: Path) -> AsyncIterator["Stub"]:
    async with open_channel(f"unix:{tmp_path}/r/broker.sock") as channel:
        yield rpc.BrokerServiceStub(channel)


async def test_leases_outlive_a_killed_broker(tmp_path: Path) -> None:
    section = "{device: simulated, capacity_mib: 1000}"
    with process(tmp_path, section, {}) as child:
        await until(tmp_path, lambda device: device.reachable)
        async with dial(tmp_path) as stub:
            kept = (await stub.AcquireLease(ask(100, request_id="r"))).lease
            renewal = pb.RenewLeaseRequest(lease_id=kept.lease_id, materialised_mib=70)
            kept = (await stub.RenewLease(renewal)).lease
            gone = (await stub.AcquireLease(ask(50))).lease
            await stub.ReleaseLease(pb.ReleaseLeaseRequest(lease_id=gone.lease_id))
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    with process(tmp_path, section, {}) as child:
        device = await until(tmp_path, lambda device: device.reachable)
        assert (device.leased_mib, device.free_mib, device.unmaterialised_mib) == (100, 930, 30)
        async with dial(tmp_path) as stub:
            (found,) = (await stub.ListLeases(pb.ListLeasesRequest())).leases
            assert found.expires_unix_ms >= kept.expires_unix_ms
            found.expires_unix_ms = kept.expires_unix_ms
            assert found == kept
            again = (await stub.AcquireLease(ask(100, request_id="r"))).lease
            assert again.lease_id == kept.lease_id
            await stub.RenewLease(renewal)
        child.terminate()
        assert child.wait(10) == 0


async def test_a_second_broker_on_the_same_journal_gives_up(tmp_path: Path) -> None:
    section = "{device: simulated, capacity_mib: 1000}"
    with process(tmp_path, section, {}):
        await until(tmp_path, lambda device: device.reachable)
        with process(tmp_path, section, {}) as second:
            assert await asyncio.to_thread(second.wait, 20) == 1


# What the real binding calls, answering from the file FAKE_NVML: "<code> <total> <free>" in bytes;
# code -1 hangs for as long as the file says so.
FAKE_NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
struct memory { unsigned long long total, free, used; };
static int say(struct memory *m) {
  int code = 999;
  do {
    FILE *f = fopen(getenv("FAKE_NVML"), "r");
    if (f == NULL || fscanf(f, "%d %llu %llu", &code, &m->total, &m->free) != 3) code = 999;
    if (f != NULL) fclose(f);
    if (code == -1) usleep(20000);
  } while (code == -1);
  m->used = m->total - m->free;
  return code;
}
int nvmlInitWithFlags(unsigned flags) { struct memory m; return say(&m); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = d; return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { snprintf(s, n, "Paper Card"); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { return say(m); }
const char *nvmlErrorString(int code) { return "GPU is lost"; }
"""
GIB = 1 << 30


async def test_a_card_is_read_lost_and_found_through_the_real_binding(tmp_path: Path) -> None:
    source, library = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1"
    source.write_text(FAKE_NVML)
    compiler = await asyncio.create_subprocess_exec(
        "gcc", "-shared", "-fPIC", "-o", library, source
    )
    assert await asyncio.wait_for(compiler.wait(), 60) == 0
    state = tmp_path / "state.txt"

    def card(code: int, free: int) -> None:
        draft = tmp_path / "draft.txt"
        draft.write_text(f"{code} {32 * GIB} {free}")
        draft.replace(state)

    card(0, 20 * GIB)
    env = {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_NVML": str(state)}
    with process(tmp_path, "{device: auto, read_deadline_s: 0.5}", env):
        device = await until(tmp_path, lambda device: device.reachable)
        assert (device.device, device.kind) == ("gpu0", pb.DEVICE_KIND_NVML)
        assert (device.description, device.total_mib, device.free_mib) == (
            "Paper Card",
            32768,
            20480,
        )
        assert (device.foreign_mib, device.floor_mib) == (12288, 1024)
        async with dial(tmp_path) as stub:
            lease = (await stub.AcquireLease(ask(8192))).lease
            full = (await stub.AcquireLease(ask(16384))).denial
            assert full.headroom_mib == 20480 - 8192 - 256

            for code in (15, -1):  # lost, then hanging
                card(code, 20 * GIB)
                lost = await until(tmp_path, lambda device: not device.reachable)
                assert lost.retry_at_unix_ms > 0
                assert lost.free_mib == 20480
                fault = await refusal(stub.AcquireLease(ask(1)))
                assert fault.reason is Reason.DEVICE_UNREACHABLE
                assert fault.retry_after_s is not None
                renewal = pb.RenewLeaseRequest(lease_id=lease.lease_id)
                await stub.RenewLease(renewal, timeout=5)  # leases go on meanwhile
                card(0, 5 * GIB)
                found = await until(tmp_path, lambda device: device.reachable)
                assert found.free_mib == 5120
                card(0, 20 * GIB)
                await until(tmp_path, lambda device: device.free_mib == 20480)
