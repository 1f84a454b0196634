"""A publisher that never waits, and watchers that fall behind or are let go."""

import asyncio

import pytest

from hosting.broadcast import Broadcast, Fallen


async def test_everyone_hears_what_is_published_while_they_watch() -> None:
    events: Broadcast[int] = Broadcast()
    events.publish(1)
    with events.subscribe() as one, events.subscribe() as two:
        events.publish(2)
        assert await one.next(1) == await two.next(1) == 2
        assert await one.next(0.01) is None


async def test_who_falls_behind_is_told() -> None:
    events: Broadcast[int] = Broadcast(most_queued=2)
    with events.subscribe() as slow:
        for item in range(3):
            events.publish(item)
        with pytest.raises(Fallen):
            await slow.next(1)


async def test_closing_wakes_those_who_wait_and_lets_newcomers_go() -> None:
    events: Broadcast[int] = Broadcast()
    with events.subscribe() as waiting:
        task = asyncio.create_task(waiting.next(60))
        await asyncio.sleep(0)  # it waits now
        events.close()
        with pytest.raises(Fallen):
            await asyncio.wait_for(task, 1)
    with events.subscribe() as late, pytest.raises(Fallen):
        await late.next(60)
