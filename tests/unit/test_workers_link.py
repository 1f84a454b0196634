"""Calls between a worker and its parent, over a real pair of sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from chassis.errors import Fault, Reason
from edge.workers import link as room
from edge.workers.frames import Kind, packed
from edge.workers.link import Bound, Link, Method

DEADLINE_S = 5.0


@dataclass(frozen=True)
class Pair:
    left: int
    right: int


ADD: Method[Pair, int] = Method("add", Pair, int)
NOTE: Method[str, None] = Method("note", str, None)
MAYBE: Method[str, bytes | None] = Method("maybe", str, bytes | None)


@asynccontextmanager
async def linked(bounds: Sequence[Bound] = (), most: int = 10**6) -> AsyncIterator[list[Link]]:
    ends = socket.socketpair()
    links = [Link(most), Link(most, bounds)]
    for link, end in zip(links, ends, strict=True):
        await link.connect(end)
    try:
        yield links
    finally:
        for link in links:
            link.close()
        for link in links:
            await link.closed.wait()


async def test_calls_answer_at_once_or_later_and_keep_their_order() -> None:
    noted: list[str] = []

    async def maybe(which: str) -> bytes | None:
        await asyncio.sleep(0)
        return which.encode() or None

    bounds = [
        Bound(ADD, lambda it: it.left + it.right),
        Bound(NOTE, noted.append),
        Bound(MAYBE, maybe),
    ]
    async with linked(bounds) as (here, _):
        for number in range(50):
            here.tell(NOTE, str(number))
        assert await here.call(ADD, Pair(2, 3)) == 5
        assert noted == [str(number) for number in range(50)]
        assert await asyncio.gather(*(here.call(MAYBE, text) for text in ("a", "", "b"))) == [
            b"a", None, b"b",
        ]  # fmt: skip


async def test_a_fault_is_the_same_at_the_caller_and_a_bug_tells_nothing() -> None:
    def refuse(_: str) -> bytes:
        raise Fault(Reason.QUEUE_FULL, "Full; wait.", retry_after_s=2.5, metadata={"param": "x"})

    async def break_down(_: Pair) -> int:
        raise ZeroDivisionError("secret")

    async with linked([Bound(MAYBE, refuse), Bound(ADD, break_down)]) as (here, _):
        with pytest.raises(Fault) as told:
            await here.call(MAYBE, "")
        fault = told.value
        assert (fault.reason, fault.message) == (Reason.QUEUE_FULL, "Full; wait.")
        assert (fault.retry_after_s, fault.metadata) == (2.5, {"param": "x"})
        with pytest.raises(Fault) as told:
            await here.call(ADD, Pair(1, 1))
        assert told.value.reason is Reason.INTERNAL
        assert "secret" not in told.value.message


async def test_both_ends_may_call() -> None:
    async with linked([Bound(ADD, lambda it: it.left - it.right)]) as (here, there):
        here.answers([Bound(ADD, lambda it: it.left * it.right)])
        assert await here.call(ADD, Pair(7, 5)) == 2
        assert await there.call(ADD, Pair(7, 5)) == 35


async def test_who_waits_hears_that_the_other_end_has_died() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang(_: str) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return b""

    async with linked([Bound(MAYBE, hang)]) as (here, there):
        call = asyncio.create_task(here.call(MAYBE, ""))
        await asyncio.wait_for(begun.wait(), DEADLINE_S)
        there.close()
        with pytest.raises(Fault, match="does not answer"):
            await asyncio.wait_for(call, DEADLINE_S)
        await asyncio.wait_for(ended.wait(), DEADLINE_S)  # what was asked for is left, too
        await here.closed.wait()
        with pytest.raises(Fault, match="does not answer"):
            await here.call(MAYBE, "")
        here.tell(NOTE, "nobody hears this")


async def test_an_answer_that_does_not_come_is_waited_for_in_bounds() -> None:
    async def hang(_: str) -> bytes:
        await asyncio.Event().wait()
        return b""

    async with linked([Bound(MAYBE, hang)]) as (here, _):
        with pytest.raises(Fault, match="does not answer"):
            await here.call(MAYBE, "", within_s=0.01)


async def test_who_is_far_behind_is_told_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_UNSENT_BYTES", 1000)
    ours, theirs = socket.socketpair()
    here = Link(10**6)
    await here.connect(ours)
    for _ in range(100):  # nobody reads
        here.tell(NOTE, "x" * 100_000)
    assert here._transport is not None
    assert here._transport.get_write_buffer_size() < 500_000
    with pytest.raises(Fault, match="does not answer"):
        await here.call(NOTE, "")
    here.close()
    theirs.close()
    await here.closed.wait()


async def test_what_is_no_link_ends_it() -> None:
    ours, theirs = socket.socketpair()
    here = Link(1000)
    await here.connect(ours)
    theirs.sendall(packed(Kind.TELL, 0, "note", b"\xc4\xff" + b"x" * 2000))
    await asyncio.wait_for(here.closed.wait(), DEADLINE_S)
    theirs.close()
