"""Devices: capacity of a host under each kind of limit, a driver that fails or hangs, floors."""

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pydantic
import pynvml
import pytest

from services.broker.config import BrokerConfig
from services.broker.core import Floors
from services.broker.device_cpu import CpuDevice, cgroup_limit_mib, read_host
from services.broker.device_nvml import Caller, NvmlDevice, cards
from services.broker.driver_nvml import Card

MIB = 1 << 20


def host(tmp_path: Path, groups: str, limits: dict[str, str]) -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup with 16 GiB of memory and these limits."""
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable: 1048576 kB\nHugePages: 0\n")
    (proc / "self" / "cgroup").write_text(groups)
    cgroup.mkdir()
    for name, text in limits.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(text + "\n")
    return proc, cgroup


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/a/b\n", {}, None),
        ("0::/a/b\n", {"a/b/memory.max": "max"}, None),
        ("0::/a/b\n", {"a/b/memory.max": f"{512 * MIB}"}, 512),
        ("0::/a/b\n", {"a/b/memory.max": f"{512 * MIB}", "a/memory.max": f"{256 * MIB}"}, 256),
        ("0::/../x\n", {"memory.max": f"{128 * MIB}"}, 128),
        ("0::/gone\n", {"memory.max": f"{128 * MIB}"}, 128),
        ("4:cpu,memory:/j\n", {"memory/j/memory.limit_in_bytes": f"{64 * MIB}"}, 64),
        ("4:memory:/gone\n", {"memory/memory.limit_in_bytes": f"{32 * MIB}"}, 32),
        ("4:cpu:/j\n", {"memory/j/memory.limit_in_bytes": f"{64 * MIB}"}, None),
    ],
)
def test_tightest_control_group(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    assert cgroup_limit_mib(*host(tmp_path, groups, limits)) == expected


@pytest.mark.parametrize(
    ("configured", "limit", "expected"),
    [
        (None, "max", 16384),
        (None, str(2048 * MIB), 2048),
        (1024, str(2048 * MIB), 1024),
        (4096, str(2048 * MIB), 2048),
        (99999, "9223372036854771712", 16384),
    ],
)
async def test_capacity_of_a_host_is_the_least(
    tmp_path: Path, configured: int | None, limit: str, expected: int
) -> None:
    proc, cgroup = host(tmp_path, "0::/\n", {"memory.max": limit})
    reading = await CpuDevice(configured, proc=proc, cgroup=cgroup).read(0, 0)
    assert (reading.total_mib, reading.free_mib, reading.reachable) == (expected, None, True)


def test_this_host_can_be_read() -> None:
    real = read_host()
    assert 0 < real.available_mib <= real.total_mib


class Driver:
    """A driver whose answers are set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: NvmlDevice) -> None:
        self.answer: tuple[int, int] | int = (1000, 400)
        self.calls = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        monkeypatch.setattr(device, "_query", self.query)

    def query(self) -> tuple[int, int]:
        self.calls += 1
        self.may_answer.wait(30)
        if isinstance(self.answer, int):
            raise pynvml.NVMLError(self.answer)
        return self.answer


async def test_a_lost_driver_is_unreachable_and_not_full(monkeypatch: pytest.MonkeyPatch) -> None:
    device = NvmlDevice(Card(0), 5.0)
    driver = Driver(monkeypatch, device)
    assert (await device.read(0, 0)).free_mib == 400

    driver.answer = pynvml.NVML_ERROR_GPU_IS_LOST
    lost = await device.read(1000, 0)
    assert (lost.reachable, lost.total_mib, lost.free_mib) == (False, 1000, 400)
    assert lost.retry_at_unix_ms == 2000


async def test_asks_again_after_growing_pauses_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = NvmlDevice(Card(0), 5.0)
    driver = Driver(monkeypatch, device)
    driver.answer, now, pauses = pynvml.NVML_ERROR_UNKNOWN, 0, []
    for _ in range(7):
        again = (await device.read(now, 0)).retry_at_unix_ms
        calls = driver.calls
        await device.read(again - 1, 0)
        assert driver.calls == calls  # left alone until it is time
        pauses.append(again - now)
        now = again
    assert pauses == [1000, 2000, 4000, 8000, 16000, 30000, 30000]

    driver.answer = (1000, 0)
    full = await device.read(now, 0)
    assert (full.reachable, full.free_mib, full.retry_at_unix_ms) == (True, 0, 0)


async def test_a_hanging_driver_blocks_nothing_and_is_called_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = NvmlDevice(Card(0), 0.05)
    driver = Driver(monkeypatch, device)
    driver.may_answer.clear()
    hung = await device.read(0, 0)
    assert not hung.reachable
    again = await device.read(hung.retry_at_unix_ms, 0)
    assert not again.reachable
    assert driver.calls == 1  # a second thread would hang as well

    driver.may_answer.set()
    async with asyncio.timeout(5):
        assert device._caller._running is not None
        await device._caller._running
    driver.answer = (1000, 123)
    fresh = await device.read(again.retry_at_unix_ms, 0)
    assert (fresh.reachable, fresh.free_mib) == (True, 123)  # not the answer that came too late


async def test_a_cancelled_reader_leaves_no_second_call() -> None:
    began, may_end = threading.Event(), threading.Event()

    def slow() -> int:
        began.set()
        may_end.wait(30)
        return 1

    caller = Caller(5.0)
    reader = asyncio.create_task(caller.call(slow))
    await asyncio.to_thread(began.wait, 5)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    with pytest.raises(TimeoutError):
        await caller.call(slow)
    may_end.set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, [Card(0), Card(1)]),  # it may come back
        (pynvml.NVML_ERROR_NOT_SUPPORTED, [Card(1)]),
        (pynvml.NVML_ERROR_NO_PERMISSION, [Card(1)]),
    ],
)
@pytest.mark.parametrize("fails", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"])
async def test_a_card_that_does_not_answer_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, code: int, found: list[Card], fails: str
) -> None:
    def ask(name: str, index: int) -> int:
        if name == fails and index == 0:
            raise pynvml.NVMLError(code)
        return index

    def no_mig(handle: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in ("nvmlInit", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, name, lambda: None)
    for name in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetMemoryInfo"):
        monkeypatch.setattr(pynvml, name, partial(ask, name))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", no_mig)
    assert await cards(5.0) == found


async def test_no_driver_is_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    assert await cards(5.0) == []


def test_floors_follow_size_except_on_a_card() -> None:
    config = BrokerConfig()
    assert config.floors_of(24576, card=True) == Floors(256, 512, 768, 1024)
    assert config.floors_of(65536, card=False) == Floors(256, 512, 768, 1024)
    assert config.floors_of(1280, card=False) == Floors(10, 20, 30, 40)
    own = BrokerConfig.model_validate(
        {"floor_mib": {"paid": 1, "sub": 2, "free": 3, "background": 4}}
    )
    assert own.floors_of(1280, card=True) == Floors(1, 2, 3, 4)


def test_a_host_keeps_an_eighth_unless_told_what_to_lend() -> None:
    assert BrokerConfig().reserve_of(8000, host=True) == 1000
    assert BrokerConfig().reserve_of(8000, host=False) == 0
    assert BrokerConfig(capacity_mib=8000).reserve_of(8000, host=True) == 0
    assert BrokerConfig(reserve_mib=5).reserve_of(8000, host=True) == 5


def test_what_others_will_grow_by_is_kept_beside_the_reserve() -> None:
    reserves = {"desktop": 300, "recorder": 200}
    assert BrokerConfig(reserves=reserves).reserve_of(8000, host=True) == 1500
    assert BrokerConfig(reserves=reserves).reserve_of(8000, host=False) == 500
    assert BrokerConfig(reserves=reserves, reserve_mib=5).reserve_of(8000, host=True) == 505


@pytest.mark.parametrize(
    ("entry", "ends_ms"), [({}, None), ({"for_s": 2}, 3500), ({"until_s": 2.5}, 2500)]
)
def test_a_foreign_tenant_comes_and_goes_as_declared(
    entry: dict[str, Any], ends_ms: int | None
) -> None:
    (visit,) = sim(foreign=[{"name": "game", "at_s": 1.5, "mib": 8, **entry}]).foreign
    assert (visit.visit.from_ms, visit.visit.until_ms) == (1500, ends_ms)


def sim(**changes: Any) -> BrokerConfig:
    return BrokerConfig.model_validate({"device": "simulated", "capacity_mib": 1000} | changes)


SIM = {"device": "simulated", "capacity_mib": 1000}
GAME = {"name": "game", "mib": 8}


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"device": "simulated"}, "expected capacity_mib"),
        ({"device": "nvml", "capacity_mib": 1}, "a card knows its own"),
        ({"lease_ttl_s": 20, "max_lease_ttl_s": 10}, "at most max_lease_ttl_s"),
        ({"floor_mib": {"paid": 5, "sub": 2, "free": 3, "background": 4}}, "paid dips furthest"),
        ({"floor_mib": {"paid": 5}}, "Field required"),
        ({"device": "tpu"}, "'auto', 'cpu', 'nvml' or 'simulated'"),
        ({"capacity_mib": 0}, "greater than 0"),
        ({"reserves": {"desktop": 0}}, "greater than 0"),
        ({"reserves": {"": 1}}, "at least 1 character"),
        ({"reserves": {str(n): 1 for n in range(65)}}, "at most 64 items"),
        ({"foreign": [GAME]}, "a real device has its own"),
        ({**SIM, "foreign": [GAME] * 65}, "at most 64 items"),
        ({**SIM, "foreign": [GAME | {"for_s": 1, "until_s": 2}]}, "not both"),
        ({**SIM, "foreign": [GAME | {"at_s": 2, "until_s": 2}]}, "later than at_s"),
        ({**SIM, "foreign": [{"name": "game"}]}, "Field required"),
    ],
)
def test_a_wrong_section_says_what_was_expected(section: dict[str, Any], complaint: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=complaint):
        BrokerConfig.model_validate(section)
