"""Responses over several workers: found wherever they are, and never between two places."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from chassis.errors import Fault
from edge.responses.body import ResponsesBody
from edge.responses.frame import framed
from edge.responses.ids import response_id, slot_of
from edge.responses.in_flight import InFlight, Run
from edge.responses.room import ResponsesRoom
from edge.responses.shared import SharedShelf, answered_here
from edge.responses.store import Kept, ResponseStore, kept
from edge.responses.writer import Writer
from edge.workers.link import Link

DEADLINE_S = 5.0
MOST = 10**6


class Edge:
    """Two workers and their parent, on one loop."""

    def __init__(self) -> None:
        self.store = ResponseStore(10, MOST, 60, lambda: 0.0)
        self.links: dict[int, Link] = {}
        self.runs = [InFlight(slot) for slot in range(2)]
        self.shelves: list[SharedShelf] = []

    async def add(self, slot: int, stack: AsyncExitStack) -> None:
        ours, theirs = socket.socketpair()
        worker = Link(MOST, answered_here(self.runs[slot]))
        parent = Link(MOST, ResponsesRoom(self.store, self.links).methods(slot))
        for link, end in ((worker, ours), (parent, theirs)):
            await link.connect(end)
            stack.push_async_callback(link.closed.wait)
            stack.callback(link.close)
        self.links[slot] = parent
        self.shelves.append(SharedShelf(worker, MOST))


@asynccontextmanager
async def edge() -> AsyncIterator[Edge]:
    async with AsyncExitStack() as stack:
        it = Edge()
        for slot in range(2):
            await it.add(slot, stack)
        yield it


def run_in(slot: int) -> Run:
    response = framed(ResponsesBody("m", "Hi"), (), response_id(slot), 5)
    return Run("alice", Writer(response, str), [])


def test_an_id_says_who_answers_it() -> None:
    assert [slot_of(response_id(slot)) for slot in (0, 7, 63)] == [0, 7, 63]
    assert slot_of("resp_zz") is None
    assert slot_of("") is None


async def test_what_is_answered_elsewhere_is_seen_there_by_its_owner_alone() -> None:
    async with edge() as it:
        run = run_in(0)
        name = run.writer.response.id
        with it.runs[0].holding(run):
            seen = await it.shelves[1].look(name, "alice")
            assert seen is not None
            assert (seen.over, b'"in_progress"' in seen.kept.body) == (False, True)
            assert await it.shelves[1].look(name, "bob") is None
            assert await it.shelves[1].cancel(name, "bob") is None
            # Its own worker has looked at home already.
            assert await it.shelves[0].look(name, "alice") is None
        assert await it.shelves[1].look(name, "alice") is None


async def test_who_asks_between_the_last_word_and_the_store_waits_for_the_store() -> None:
    async with edge() as it:
        run = run_in(0)
        name = run.writer.response.id
        with it.runs[0].holding(run):
            run.writer.leave()  # its end has been told to its client
            looking = asyncio.create_task(it.shelves[1].look(name, "alice"))
            await it.shelves[1].look("resp_00", "alice")  # has been there and back since
            assert not looking.done()
            it.shelves[0].keep(name, kept("alice", run.writer.body(), []))
        seen = await asyncio.wait_for(looking, DEADLINE_S)
        assert seen is not None
        assert seen.over


async def test_cancelling_goes_to_who_does_the_work() -> None:
    async with edge() as it:
        run = run_in(1)
        name = run.writer.response.id
        with it.runs[1].holding(run):
            cancelling = asyncio.create_task(it.shelves[0].cancel(name, "alice"))
            await it.shelves[0].look("resp_01", "alice")  # has been there and back since
            assert not run.in_progress
        left = await asyncio.wait_for(cancelling, DEADLINE_S)
        assert left is not None
        assert b'"cancelled"' in left
        assert await it.shelves[0].cancel(name, "alice") is None


async def test_who_has_died_answers_nothing_and_what_it_kept_is_there() -> None:
    async with edge() as it:
        it.shelves[0].keep(name := response_id(0), Kept("alice", b"{}", b"[]"))
        seen = await it.shelves[1].look(name, "alice")  # the parent has heard of it by then
        while seen is None:
            seen = await it.shelves[1].look(name, "alice")
        it.links.pop(0).close()
        assert await it.shelves[1].look(name, "alice") == seen
        assert await it.shelves[1].look(response_id(0), "alice") is None
        assert await it.shelves[1].forget(name, "bob") is False
        assert await it.shelves[1].forget(name, "alice") is True
        with pytest.raises(Fault, match="does not answer"):
            await it.shelves[0].look(name, "alice")


async def test_what_would_be_turned_away_is_not_even_sent() -> None:
    async with edge() as it:
        huge = Kept("alice", b"x" * (MOST + 1), b"")
        it.shelves[0].keep(name := response_id(0), huge)
        assert await it.shelves[1].look(name, "alice") is None
        assert len(it.store) == 0


@pytest.mark.parametrize(("body_bytes", "is_kept"), [(MOST - 1024, True), (MOST, False)])
async def test_what_is_larger_than_all_room_costs_the_link_nothing(
    body_bytes: int, is_kept: bool
) -> None:
    async with edge() as it:
        it.shelves[0].keep("large", Kept("alice", b"x" * body_bytes, b""))
        assert await it.shelves[0].look("small", "alice") is None  # over the same link, behind it
        assert (await it.shelves[0].look("large", "alice") is not None) == is_kept
        assert not it.links[0].closed.is_set()
