"""The shell: turns, callers that go away, a disk that fails, what Prometheus sees."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from chassis.errors import Fault, Reason
from chassis.metrics import MIB
from services.broker.config import BrokerConfig
from services.broker.core import Denied, Lease, LeaseKind, Tier
from services.broker.device import DeviceKind, DeviceReading, ProcessUse
from services.broker.journal import NAME, Journal
from services.broker.shell import Shell, Wish

WISH = Wish("llm/m", "", LeaseKind.RESIDENT, Tier.PAID, 100, 100, 0, "")


class GatedDevice:
    """A device whose readings wait for the test."""

    name, kind, description = "gate0", DeviceKind.SIMULATED, "Gated device"

    def __init__(self) -> None:
        self.asked, self.open = asyncio.Event(), asyncio.Event()
        self.open.set()

    async def read(self, now_ms: int, promised_mib: int) -> DeviceReading:
        self.asked.set()
        await self.open.wait()
        return DeviceReading(1280, None)

    async def processes(self) -> tuple[ProcessUse, ...]:
        return ()


@asynccontextmanager
async def running(path: Path, device: GatedDevice, **changes: Any) -> AsyncIterator[Shell]:
    config = BrokerConfig(device="simulated", capacity_mib=1280)
    shell = Shell(config, [device], Journal(path), **changes)
    shell.start()
    try:
        yield shell
    finally:
        device.open.set()
        await shell.close()


async def test_a_caller_that_leaves_while_its_call_runs_strands_nothing(tmp_path: Path) -> None:
    device = GatedDevice()
    async with running(tmp_path, device) as shell:
        device.open.clear()
        caller = asyncio.create_task(shell.acquire(WISH))
        await asyncio.wait_for(device.asked.wait(), 5)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        device.open.set()
        assert await shell.leases("", "") == []
    assert len((tmp_path / NAME).read_bytes().splitlines()) == 2  # granted and given back


async def test_a_caller_that_leaves_while_waiting_is_skipped(tmp_path: Path) -> None:
    device = GatedDevice()
    async with running(tmp_path, device) as shell:
        device.open.clear()
        first = asyncio.create_task(shell.acquire(WISH))
        await asyncio.wait_for(device.asked.wait(), 5)
        second = asyncio.create_task(shell.acquire(replace(WISH, holder="llm/second")))
        third = asyncio.create_task(shell.acquire(replace(WISH, holder="llm/third")))
        await asyncio.sleep(0)  # both are in line now
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        device.open.set()
        assert isinstance(await first, Lease)
        assert isinstance(await third, Lease)
        assert [x.holder for x in await shell.leases("", "")] == ["llm/m", "llm/third"]
    assert b"llm/second" not in (tmp_path / NAME).read_bytes()


async def test_a_repeated_call_needs_no_device(tmp_path: Path) -> None:
    device = GatedDevice()
    async with running(tmp_path, device) as shell:
        first = await shell.acquire(replace(WISH, request_id="r"))
        device.open.clear()
        again = shell.acquire(replace(WISH, request_id="r"))
        assert await asyncio.wait_for(again, 5) == first


async def test_a_full_line_refuses(tmp_path: Path) -> None:
    device = GatedDevice()
    async with running(tmp_path, device, max_waiting=1) as shell:
        device.open.clear()
        running_now = asyncio.create_task(shell.acquire(WISH))
        await asyncio.wait_for(device.asked.wait(), 5)
        waiting = asyncio.create_task(shell.acquire(WISH))
        await asyncio.sleep(0)
        with pytest.raises(Fault, match="1 calls already wait") as caught:
            await shell.acquire(WISH)
        assert caught.value.reason is Reason.SATURATED
        device.open.set()
        await asyncio.gather(running_now, waiting)


async def test_what_cannot_be_journalled_is_not_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, GatedDevice()) as shell:

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(shell._journal, "append", full)
            with pytest.raises(Fault, match="No space left on device") as caught:
                await shell.acquire(replace(WISH, request_id="r"))
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
        assert await shell.leases("", "") == []
        assert isinstance(await shell.acquire(replace(WISH, request_id="r")), Lease)


async def test_a_long_life_keeps_a_short_journal(tmp_path: Path) -> None:
    config = BrokerConfig(device="simulated", capacity_mib=1280)
    shell = Shell(config, [GatedDevice()], Journal(tmp_path, compact_bytes=2000))
    shell.start()
    lease = await shell.acquire(WISH)
    assert isinstance(lease, Lease)
    for n in range(100):
        await shell.renew(lease.lease_id, n, 0)
    await shell.close()
    assert (tmp_path / NAME).stat().st_size < 3000
    reborn = Shell(config, [GatedDevice()], Journal(tmp_path))
    assert reborn.start() == 1
    (kept,) = await reborn.leases("", "")
    assert kept.materialised_mib == 99
    await reborn.close()


async def test_a_restart_gives_holders_time_to_be_heard(tmp_path: Path) -> None:
    now = 1_000_000
    async with running(tmp_path, GatedDevice(), clock=lambda: now) as shell:
        await shell.acquire(WISH)
    now += 3_600_000  # away for an hour
    async with running(tmp_path, GatedDevice(), clock=lambda: now) as shell:
        (lease,) = await shell.leases("", "")
        assert lease.expires_unix_ms == now + 30_000
        now += 30_000
        assert await shell.leases("", "") == []


async def test_pressure_is_for_those_who_watch_and_for_wishes_that_may_yet_be_met(
    tmp_path: Path,
) -> None:
    low = replace(WISH, tier=Tier.FREE, preferred_mib=1200, minimum_mib=1200)
    async with running(tmp_path, GatedDevice()) as shell:
        with shell.watchers.watch("matte/") as other, shell.watchers.watch("llm/") as box:
            lease = await shell.acquire(low)
            assert isinstance(lease, Lease)
            await shell.acquire(replace(WISH, preferred_mib=2000, minimum_mib=2000))  # never
            await shell.acquire(low)  # of the same tier
            await shell.acquire(replace(WISH, leave_mib=100))
            shell.watchers.close()
            told = await box.next()
            assert told is not None
            assert (told.lease_id, told.shrink_mib) == (lease.lease_id, 200 - (1280 - 1200 - 10))
            assert (await box.next(), await other.next()) == (None, None)


async def test_a_lowered_grant_outlives_the_broker(tmp_path: Path) -> None:
    async with running(tmp_path, GatedDevice()) as shell:
        lease = await shell.acquire(WISH)
        assert isinstance(lease, Lease)
        assert (await shell.renew(lease.lease_id, 10, 0, shrink_to_mib=40)).granted_mib == 40
    async with running(tmp_path, GatedDevice()) as shell:
        (kept,) = await shell.leases("", "")
        assert (kept.granted_mib, kept.materialised_mib) == (40, 10)


async def test_metrics_follow_the_ledger(tmp_path: Path) -> None:
    def value(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"cohabit_{name}", labels) or 0.0

    before = value("lease_denials_total", reason="no_headroom")
    async with running(tmp_path, GatedDevice()) as shell:
        lease = await shell.acquire(WISH)
        assert isinstance(lease, Lease)
        assert value("device_leased_bytes", device="gate0") == 100 * MIB
        assert value("device_unmaterialised_bytes", device="gate0") == 100 * MIB
        headroom = value("device_headroom_bytes", device="gate0", tier="paid")
        assert headroom == (1280 - 10 - 100) * MIB
        denied = await shell.acquire(replace(WISH, preferred_mib=1200, minimum_mib=1200))
        assert isinstance(denied, Denied)
        assert value("lease_denials_total", reason="no_headroom") == before + 1
        await shell.release(lease.lease_id)
        assert value("device_leased_bytes", device="gate0") == 0
        headroom = value("device_headroom_bytes", device="gate0", tier="background")
        assert headroom == (1280 - 40) * MIB
        assert value("device_capacity_bytes", device="gate0") == 1280 * MIB
