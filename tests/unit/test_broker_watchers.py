"""Mailboxes and watchers: the newest message of each kind, bounds, ends."""

import asyncio

import pytest

from chassis.errors import Fault, Reason
from services.broker.core import Shrink, Tier
from services.broker.mailbox import Mailbox
from services.broker.watchers import Watchers


def shrink(lease_id: str, holder: str = "llm/a", mib: int = 10) -> Shrink:
    return Shrink(lease_id, holder, mib, Tier.PAID)


async def test_messages_come_in_order_and_the_newest_of_a_kind_counts() -> None:
    box: Mailbox[int] = Mailbox(2)
    assert box.put("a", 1)
    assert box.put("b", 2)
    assert box.put("a", 3)
    assert not box.put("c", 4)  # no room for another kind
    assert [await box.next(), await box.next()] == [3, 2]
    box.end()
    assert await box.next() is None


async def test_a_reader_waits_for_what_comes() -> None:
    box: Mailbox[int] = Mailbox(2)
    reader = asyncio.create_task(box.next())
    await asyncio.sleep(0)
    assert not reader.done()
    box.put("a", 1)
    assert await asyncio.wait_for(reader, 5) == 1


async def test_the_rest_is_read_before_the_error() -> None:
    box: Mailbox[int] = Mailbox(2)
    box.put("a", 1)
    box.end(ValueError("first"))
    box.end()  # the first end counts
    assert await box.next() == 1
    for _ in range(2):
        with pytest.raises(ValueError, match="first"):
            await box.next()


async def test_each_watcher_hears_of_its_own_holders() -> None:
    watchers = Watchers()
    with watchers.watch("llm/") as llm, watchers.watch("") as all_:
        watchers.tell(shrink("x", "llm/a"))
        watchers.tell(shrink("y", "matte/b"))
        watchers.close()
        assert [await llm.next(), await llm.next()] == [shrink("x"), None]
        assert [await all_.next(), await all_.next()] == [shrink("x"), shrink("y", "matte/b")]
        assert watchers.want("matte/b")
    assert not watchers.want("matte/b")


async def test_watchers_are_bounded() -> None:
    watchers = Watchers(most=1)
    with watchers.watch("llm/"):
        with pytest.raises(Fault, match="1 streams of pressure") as caught, watchers.watch("x/"):
            pass
        assert caught.value.reason is Reason.SATURATED
    with watchers.watch("llm/"):
        pass


async def test_one_who_does_not_read_is_ended_and_the_others_are_not() -> None:
    watchers = Watchers(most_unread=2)
    with watchers.watch("") as slow, watchers.watch("") as quick:
        for name in ("a", "b", "c", "a"):
            watchers.tell(shrink(name))
            assert await quick.next() == shrink(name)
        assert [await slow.next(), await slow.next()] == [shrink("a"), shrink("b")]
        with pytest.raises(Fault) as caught:
            await slow.next()
        assert caught.value.reason is Reason.SLOW_READER


async def test_a_watcher_that_comes_while_all_are_leaving_ends_at_once() -> None:
    watchers = Watchers()
    watchers.close()
    with watchers.watch("") as box:
        assert await asyncio.wait_for(box.next(), 5) is None
