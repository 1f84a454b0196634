"""What keys do over several workers, counted in one place over their links."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from edge.keys.core import Bounds, Entered, Refused
from edge.keys.shared import LimitsRoom, SharedCounting
from edge.workers.link import Link

BOUNDS = Bounds(requests_per_minute=5, concurrent=2)
_MOST_BYTES = 4096


@asynccontextmanager
async def worker(room: LimitsRoom, slot: int) -> AsyncIterator[tuple[SharedCounting, Link]]:
    ours, its = socket.socketpair()
    parent, link = Link(_MOST_BYTES, room.methods(slot)), Link(_MOST_BYTES)
    await parent.connect(ours)
    await link.connect(its)
    try:
        yield SharedCounting(link), parent
    finally:
        link.close()
        await parent.closed.wait()
        room.gone(slot)


async def test_workers_count_together() -> None:
    room = LimitsRoom(lambda: 0.0)
    async with worker(room, 0) as (one, _), worker(room, 1) as (two, _):
        assert await one.enter("a", BOUNDS) == Entered(4, 12.0)
        assert await two.enter("a", BOUNDS) == Entered(3, 24.0)
        refused = await two.enter("a", BOUNDS)
        assert isinstance(refused, Refused)
        assert refused.of == "concurrent"
        assert isinstance(await two.enter("b", BOUNDS), Entered)
        one.leave("a")
        await one.enter("b", BOUNDS)  # behind it, in order
        assert isinstance(await two.enter("a", BOUNDS), Entered)
        two.leave("a")
        two.leave("a")
        for left in (1, 0):
            assert await two.enter("a", Bounds(5, None)) == Entered(left, 60.0 - 12 * left)
        assert await two.enter("a", Bounds(5, None)) == Refused("minute", 12.0, 60.0)


async def test_what_a_dead_worker_had_is_given_back() -> None:
    room = LimitsRoom(lambda: 0.0)
    async with worker(room, 0) as (one, _):
        for _ in range(2):
            assert isinstance(await one.enter("a", BOUNDS), Entered)
        assert isinstance(await one.enter("a", BOUNDS), Refused)
    async with worker(room, 0) as (again, _):
        for _ in range(2):
            assert isinstance(await again.enter("a", BOUNDS), Entered)


async def test_a_place_is_given_back_by_a_worker_whose_parent_was_far_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = LimitsRoom(lambda: 0.0)
    async with worker(room, 0) as (one, _):
        assert isinstance(await one.enter("a", Bounds(None, 1)), Entered)
        with monkeypatch.context() as behind:
            behind.setattr(Link, "_is_behind", lambda *_: True)
            one.leave("a")
        assert isinstance(await one.enter("a", Bounds(None, 1)), Entered)


async def test_who_stops_waiting_leaves_nothing_behind() -> None:
    room = LimitsRoom(lambda: 0.0)
    async with worker(room, 0) as (one, _):
        asked = asyncio.create_task(one.enter("a", Bounds(None, 1)))
        await asyncio.sleep(0)  # it has asked
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert isinstance(await one.enter("a", Bounds(None, 1)), Entered)
        late = asyncio.create_task(one.enter("a", Bounds(None, 1)))  # will be refused
        await asyncio.sleep(0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        # What was refused and not heard of gives nobody else's place back.
        assert isinstance(await one.enter("a", Bounds(None, 1)), Refused)
