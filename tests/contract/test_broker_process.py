"""Whole broker processes: killed, stopped, with tenants of a script, with cards of paper."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.simulated_card import SimulatedCard
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2 as pb
from cohabit.broker.v1 import broker_pb2_grpc as rpc
from cohabit.common.v1 import common_pb2, metrics_pb2, metrics_pb2_grpc

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


async def refusal(call: Awaitable[Any]) -> Fault:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    fault = fault_of(caught.value, "broker")
    assert caught.value.code() is fault.row.code
    return fault


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


async def test_who_only_reads_its_metrics_sees_the_device_as_it_is_now(tmp_path: Path) -> None:
    section = "{device: simulated, capacity_mib: 1000}"
    used = re.compile(r'^cohabit_device_used_bytes\{device="sim0"\} (\S+)$', re.MULTILINE)
    with process(tmp_path, section, {}):
        async with open_channel(f"unix:{tmp_path}/r/broker.sock") as channel:
            stub: metrics_pb2_grpc.MetricsServiceAsyncStub
            stub = metrics_pb2_grpc.MetricsServiceStub(channel)
            asked = metrics_pb2.GetMetricsRequest()
            before = await stub.GetMetrics(asked, wait_for_ready=True, timeout=20)
            card_in(tmp_path / "r").allocate("somebody", 300)
            after = await stub.GetMetrics(asked, timeout=20)
    mib = [float(found[1]) / 2**20 for a in (before, after) if (found := used.search(a.text))]
    assert mib == [0, 300]


async def test_leases_outlive_a_killed_broker(tmp_path: Path) -> None:
    section = "{device: simulated, capacity_mib: 1000}"
    with process(tmp_path, section, {}) as child:
        await until(tmp_path, lambda device: device.reachable)
        async with dial(tmp_path) as stub:
            kept = (await stub.AcquireLease(ask(100, request_id="r"))).lease
            card_in(tmp_path / "r").allocate("llm/m", 70)
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
    card_in(tmp_path / "r").free("llm/m")


async def test_a_foreign_tenant_of_the_script_is_seen_and_named(tmp_path: Path) -> None:
    foreign = "[{name: desktop, mib: 200}, {name: game, at_s: 9000, mib: 500, for_s: 5}]"
    section = f"{{device: simulated, capacity_mib: 1000, foreign: {foreign}}}"
    with process(tmp_path, section, {}) as child:
        device = await until(tmp_path, lambda device: device.reachable)
        assert (device.foreign_mib, device.free_mib) == (200, 800)
        use = pb.ProcessUse(pid=child.pid, used_mib=200, name="foreign/desktop")
        assert list(device.processes) == [use]
    assert card_in(tmp_path / "r").used_mib() == 0  # its memory went with the broker


async def test_a_kill_at_any_moment_neither_loses_nor_doubles_a_grant(tmp_path: Path) -> None:
    section = "{device: simulated, capacity_mib: 10000}"
    wishes = [ask(10, request_id=str(n)) for n in range(300)]
    answered: dict[str, str] = {}
    with process(tmp_path, section, {}) as child:
        await until(tmp_path, lambda device: device.reachable)

        async def wish(stub: "Stub", request: pb.AcquireLeaseRequest) -> None:
            lease = (await stub.AcquireLease(request)).lease
            answered[request.request_id] = lease.lease_id
            if len(answered) == 60:
                child.send_signal(signal.SIGKILL)

        async with dial(tmp_path) as stub:
            calls = (wish(stub, request) for request in wishes)
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert any(isinstance(end, grpc.aio.AioRpcError) for end in ends)
        child.wait(10)
    with process(tmp_path, section, {}):
        await until(tmp_path, lambda device: device.reachable)
        async with dial(tmp_path) as stub:
            for request in wishes:  # everybody asks again
                lease = (await stub.AcquireLease(request)).lease
                assert answered.get(request.request_id, lease.lease_id) == lease.lease_id
            leases = (await stub.ListLeases(pb.ListLeasesRequest())).leases
    assert len(leases) == len(wishes)


async def test_streams_of_pressure_end_when_the_broker_stops(tmp_path: Path) -> None:
    with process(tmp_path, "{device: simulated, capacity_mib: 1000}", {}) as child:
        await until(tmp_path, lambda device: device.reachable)
        async with dial(tmp_path) as stub:
            stream = stub.WatchPressure(pb.WatchPressureRequest())
            await stream.initial_metadata()
            child.terminate()
            assert await asyncio.wait_for(stream.read(), 5) is grpc.aio.EOF
        assert child.wait(5) == 0


async def test_a_second_broker_on_the_same_journal_gives_up(tmp_path: Path) -> None:
    section = "{device: simulated, capacity_mib: 1000}"
    with process(tmp_path, section, {}):
        await until(tmp_path, lambda device: device.reachable)
        with process(tmp_path, section, {}) as second:
            assert await asyncio.to_thread(second.wait, 20) == 1


# What the real binding calls, answering from the file FAKE_NVML: "<code> <total> <free>" in bytes;
# code -1 hangs for as long as the file says so. Handles are 1 + 100 * card + 10 * instance.
# -DOLD leaves out what drivers before 510 lack. -DMIG makes card 0 one of instances 0 and 2, and
# has card 1 not tell its memory.
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
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(1L + 100 * i); return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { snprintf(s, n, "Paper Card"); return 0; }
#ifdef MIG
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) {
  *now = *next = (long)d < 100;
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *d, unsigned *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned i, void **m) {
  *m = (void *)((long)d + 10 * (i + 1));
  return i == 0 || i == 2 ? 0 : 6;
}
int nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { return (long)d > 100 ? 3 : say(m); }
#else
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { return say(m); }
#endif
struct process { unsigned pid; unsigned long long used; unsigned gpu, compute; };
static int fill(unsigned *n, struct process *p, const struct process *from) {
  unsigned room = *n;
  *n = 2;
  if (room < 2) return 7;
  p[0] = from[0], p[1] = from[1];
  return 0;
}
static const struct process computing[] = {{11, 3ULL << 30}, {12, ~0ULL}};
static const struct process drawing[] = {{11, 3ULL << 30}, {13, 1ULL << 30}};
#ifdef OLD
#define COMPUTE nvmlDeviceGetComputeRunningProcesses_v2
#define DRAW nvmlDeviceGetGraphicsRunningProcesses_v2
#else
#define COMPUTE nvmlDeviceGetComputeRunningProcesses_v3
#define DRAW nvmlDeviceGetGraphicsRunningProcesses_v3
#endif
int COMPUTE(void *d, unsigned *n, struct process *p) { return fill(n, p, computing); }
#ifndef MIG
int DRAW(void *d, unsigned *n, struct process *p) { return fill(n, p, drawing); }
#endif
const char *nvmlErrorString(int code) { return "GPU is lost"; }
"""
GIB = 1 << 30


async def paper_driver(tmp_path: Path, *flags: str) -> dict[str, str]:
    """The environment in which the binding finds the library above."""
    source, library = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1"
    source.write_text(FAKE_NVML)
    compiler = await asyncio.create_subprocess_exec(
        "gcc", *flags, "-shared", "-fPIC", "-o", library, source
    )
    assert await asyncio.wait_for(compiler.wait(), 60) == 0
    paper(tmp_path, 0, 20 * GIB)
    return {"LD_LIBRARY_PATH": str(tmp_path), "FAKE_NVML": str(tmp_path / "state.txt")}


def paper(tmp_path: Path, code: int, free: int) -> None:
    """Set what the driver says of memory."""
    draft = tmp_path / "draft.txt"
    draft.write_text(f"{code} {32 * GIB} {free}")
    draft.replace(tmp_path / "state.txt")


async def test_instances_of_a_card_are_devices_and_what_tells_no_memory_is_none(
    tmp_path: Path,
) -> None:
    env = await paper_driver(tmp_path, "-DMIG")
    with process(tmp_path, "{device: auto}", env):
        device = await until(tmp_path, lambda device: device.reachable)
        async with dial(tmp_path) as stub:
            devices = (await stub.GetDeviceMemory(pb.GetDeviceMemoryRequest())).devices
            assert [x.device for x in devices] == ["gpu0.0", "gpu0.2"]
            lease = (await stub.AcquireLease(ask(10, device="gpu0.2"))).lease
            assert lease.device == "gpu0.2"
    # No list of drawing processes here: what the driver does not tell is left out.
    assert [(x.pid, x.used_mib) for x in device.processes] == [(11, 3072), (12, 0)]


@pytest.mark.parametrize("flags", [[], ["-DOLD"]])
async def test_a_card_shows_who_uses_it(tmp_path: Path, flags: list[str]) -> None:
    env = await paper_driver(tmp_path, *flags)
    with process(tmp_path, "{device: nvml}", env):
        device = await until(tmp_path, lambda device: device.reachable)
    # The largest first; who computes and draws counts once; 0 where the driver does not know.
    uses = [(x.pid, x.used_mib) for x in device.processes]
    assert uses == [(11, 3072), (13, 1024), (12, 0)]


async def test_a_card_is_read_lost_and_found_through_the_real_binding(tmp_path: Path) -> None:
    env = await paper_driver(tmp_path)
    card = partial(paper, tmp_path)
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
