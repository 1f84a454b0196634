"""Warming: what reaches the page cache, who waits for whom, and what stops it."""

import asyncio
import ctypes
import mmap
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from chassis.errors import Fault, Reason
from services.broker import warming
from services.broker.device_cpu import HostMemory
from services.broker.warm_file import CHUNK_BYTES, File, warm_chunk
from services.broker.warming import Progress, Warmer

MIB = 1 << 20


def file_of(path: Path, size: int) -> str:
    with path.open("wb") as file:
        file.truncate(size)
    return str(path)


def warmer(tmp_path: Path, available: Iterable[int] = ()) -> Warmer:
    """A warmer on a host with these readings of available memory, then with plenty."""
    readings: Iterator[int] = iter(available)
    return Warmer(tmp_path, lambda _: 100, host=lambda: HostMemory(1000, next(readings, 1000)))


class Chunks:
    """Stands in for the disk: each chunk begins when asked and ends when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.may_end, self.stopped = threading.Event(), threading.Event()
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(warming, "warm_chunk", self.warm)

    def warm(self, file: File, at: int, stop: threading.Event) -> int:
        self._loop.call_soon_threadsafe(self.began.put_nowait, file.path.name)
        while not self.may_end.is_set():
            if stop.wait(0.01):
                self.stopped.set()
                return 0
        return min(CHUNK_BYTES, file.size_bytes - at)


async def run(warm: Warmer, *paths: str) -> list[Progress]:
    async with aclosing(warm.warm(paths)) as steps:
        return [step async for step in steps]


async def test_a_long_file_goes_in_chunks_and_its_end_is_told(tmp_path: Path) -> None:
    size = 2 * CHUNK_BYTES + 7
    path = file_of(tmp_path / "a", size)
    warm = warmer(tmp_path)
    steps = await run(warm, path)
    assert steps[-1] == Progress(path, size, size)
    assert {step.done_bytes for step in steps} <= {0, CHUNK_BYTES, 2 * CHUNK_BYTES, size}
    assert warm.lately() == [steps[-1]]


def resident(fd: int, size: int) -> int:
    """Pages of a file that are in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mem:
        start = ctypes.addressof(ctypes.c_char.from_buffer(mem))
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        assert libc.mincore(start, size, pages) == 0
        return sum(page & 1 for page in pages)


def test_a_warmed_chunk_is_in_memory_to_its_last_page(tmp_path: Path) -> None:
    path, size = tmp_path / "a", 8 * MIB
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = resident(file.fileno(), size)
        if before:
            pytest.skip("this file system keeps what it is told to forget")
        assert warm_chunk(File(str(path), path, size), 0, threading.Event()) == size
        assert resident(file.fileno(), size) == size // mmap.PAGESIZE


async def test_short_memory_ends_it_between_chunks_and_for_the_files_after(tmp_path: Path) -> None:
    paths = [file_of(tmp_path / name, 2 * CHUNK_BYTES) for name in ("a", "b")]
    warm = warmer(tmp_path, [100, 99])
    steps = await run(warm, *paths)
    first, second = warm.lately()
    assert (first, second) == (
        Progress(paths[0], CHUNK_BYTES, 2 * CHUNK_BYTES, stopped_short=True),
        Progress(paths[1], 0, 2 * CHUNK_BYTES, stopped_short=True),
    )
    assert steps[-1] == second


async def test_leaving_stops_the_work_and_lets_the_next_one_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks, warm = Chunks(monkeypatch), warmer(tmp_path)
    paths = [file_of(tmp_path / name, 1000) for name in ("a", "b")]
    first = asyncio.create_task(run(warm, paths[0]))
    assert await asyncio.wait_for(chunks.began.get(), 5) == "a"
    second = asyncio.create_task(run(warm, paths[1]))
    first.cancel()
    assert await asyncio.wait_for(chunks.began.get(), 5) == "b"
    assert chunks.stopped.is_set()
    chunks.may_end.set()
    assert (await asyncio.wait_for(second, 5))[-1] == Progress(paths[1], 1000, 1000)


async def test_one_call_at_a_time_in_order_and_no_more_than_eight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks, warm = Chunks(monkeypatch), warmer(tmp_path)
    paths = [file_of(tmp_path / str(n), 1000) for n in range(9)]
    calls = [asyncio.create_task(run(warm, paths[0]))]
    assert await asyncio.wait_for(chunks.began.get(), 5) == "0"
    for n, path in enumerate(paths[1:8], 2):
        calls.append(asyncio.create_task(run(warm, path)))
        await asyncio.wait_for(reaches(warm, n), 5)
    with pytest.raises(Fault, match="8 calls already") as caught:
        await run(warm, paths[8])
    assert caught.value.reason is Reason.SATURATED
    assert chunks.began.empty()
    chunks.may_end.set()
    await asyncio.wait_for(asyncio.gather(*calls), 10)
    assert [chunks.began.get_nowait() for _ in range(7)] == [str(n) for n in range(1, 8)]


async def reaches(warm: Warmer, calls: int) -> None:
    while len(warm._calls) < calls:  # noqa: ASYNC110 (checked on a thread meanwhile)
        await asyncio.sleep(0.001)


async def test_a_reader_that_sleeps_delays_nobody(tmp_path: Path) -> None:
    warm = warmer(tmp_path)
    paths = [file_of(tmp_path / name, 3 * CHUNK_BYTES) for name in ("a", "b")]
    async with aclosing(warm.warm(paths[:1])) as asleep:
        await anext(asleep)
        assert (await asyncio.wait_for(run(warm, paths[1]), 20))[-1].done_bytes == 3 * CHUNK_BYTES
        assert [step async for step in asleep] == [
            Progress(paths[0], 3 * CHUNK_BYTES, 3 * CHUNK_BYTES)
        ]


async def test_a_stopping_broker_ends_calls_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks, warm = Chunks(monkeypatch), warmer(tmp_path)
    call = asyncio.create_task(run(warm, file_of(tmp_path / "a", 1000)))
    await asyncio.wait_for(chunks.began.get(), 5)
    warm.close()
    with pytest.raises(Fault, match="is stopping") as caught:
        await asyncio.wait_for(call, 5)
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    with pytest.raises(Fault, match="is stopping"):
        await run(warm, file_of(tmp_path / "b", 1000))


async def test_a_file_that_changes_meanwhile_ends_where_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path / "a", 1000)

    def shorten(file: File, at: int, stop: threading.Event) -> int:
        os.truncate(file.path, 400)
        return warm_chunk(file, at, stop)

    monkeypatch.setattr(warming, "warm_chunk", shorten)
    assert (await run(warmer(tmp_path), path))[-1] == Progress(path, 400, 400)


async def test_a_file_that_goes_meanwhile_is_said_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(tmp_path / "a", 1000)

    def remove(file: File, at: int, stop: threading.Event) -> int:
        file.path.unlink()
        return warm_chunk(file, at, stop)

    monkeypatch.setattr(warming, "warm_chunk", remove)
    with pytest.raises(Fault, match="There is no file") as caught:
        await run(warmer(tmp_path), path)
    assert caught.value.reason is Reason.FILE_NOT_FOUND


async def test_what_was_warmed_is_remembered_with_a_bound(tmp_path: Path) -> None:
    warm = warmer(tmp_path)
    paths = [file_of(tmp_path / str(n), 10) for n in range(70)]
    await run(warm, *paths, paths[69])
    assert [progress.path for progress in warm.lately()] == paths[6:]
