"""The store of responses keeps its bounds; pages of items; a run that is cancelled."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2 as pb
from edge.answering import Generated
from edge.responses.body import ResponsesBody
from edge.responses.frame import framed
from edge.responses.in_flight import InFlight, Run
from edge.responses.listing import PageWish, page, wish_of
from edge.responses.objects import MessageText, ResponseFunctionCall, ResponseMessage
from edge.responses.store import Kept, ResponseStore, kept
from edge.responses.writer import Writer
from edge.speech import PARAM

DEADLINE_S = 5.0
ENTRY_BYTES = Kept("", b"", b"").size_bytes


def entry(body: bytes = b"", owner: str = "") -> Kept:
    return Kept(owner, body, b"")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def message(name: str, text: str = "Hi") -> ResponseMessage:
    return ResponseMessage(name, "user", "completed", [MessageText(text)])


def test_the_least_recently_used_goes_first() -> None:
    store = ResponseStore(2, 10**6, 60, Clock())
    for name in ("a", "b"):
        store.keep(name, entry())
    assert store.find("a", "") is not None
    store.keep("c", entry())
    assert [name for name in "abc" if store.find(name, "")] == ["a", "c"]


def test_bytes_are_bounded_too_and_what_is_too_large_throws_nobody_out() -> None:
    store = ResponseStore(100, 3 * ENTRY_BYTES, 60, Clock())
    for name in ("a", "b", "c"):
        store.keep(name, entry())
    store.keep("huge", entry(b"x" * (3 * ENTRY_BYTES)))
    assert [name for name in ("a", "b", "c", "huge") if store.find(name, "")] == ["a", "b", "c"]
    store.keep("larger", entry(b"x" * ENTRY_BYTES))
    assert (len(store), store.size_bytes) == (2, 3 * ENTRY_BYTES)


def test_what_nobody_asks_for_expires() -> None:
    clock = Clock()
    store = ResponseStore(9, 10**6, 60, clock)
    store.keep("a", entry())
    store.keep("b", entry())
    clock.now_s = 59
    assert store.find("b", "") is not None
    clock.now_s = 60
    assert store.find("a", "") is None
    assert (len(store), store.size_bytes) == (1, ENTRY_BYTES)
    clock.now_s = 119
    assert store.find("b", "") is None


def test_a_response_is_its_owners() -> None:
    store = ResponseStore(9, 10**6, 60, Clock())
    store.keep("a", entry(owner="alice"))
    assert store.find("a", "bob") is store.find("a", "") is None
    assert not store.forget("a", "bob")
    assert store.forget("a", "alice")
    assert not store.forget("a", "alice")
    assert store.size_bytes == 0


def test_a_conversation_goes_on_without_half_a_call() -> None:
    calls = [
        ResponseFunctionCall("fc_1", "c1", "f", "{}", "completed"),
        ResponseFunctionCall("fc_2", "c2", "f", '{"a', "incomplete"),
    ]
    response = framed(ResponsesBody("m", "Hi"), (), "resp_1", 5)
    response.output = [*calls]
    body = Writer(response, str).body()
    items = kept("", body, [message("msg_1")]).conversation()
    assert items == [message("msg_1"), calls[0]]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("keep"), st.integers(0, 6), st.integers(0, 3000)),
        st.tuples(st.sampled_from(["find", "forget"]), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 40), st.just(0)),
    ),
    max_size=40,
)


@given(_STEPS)
def test_the_bounds_hold_and_the_count_of_bytes_is_true(steps: list[Any]) -> None:
    clock = Clock()
    store = ResponseStore(3, 4 * ENTRY_BYTES, 60, clock)
    alive: dict[str, tuple[Kept, float]] = {}  # in the order of use, as the oracle has it
    for number, (what, value, size) in enumerate(steps):
        name = f"{value}"
        alive = {k: v for k, v in alive.items() if v[1] > clock.now_s}
        if what == "wait":
            clock.now_s += value
        elif what == "keep":
            name = f"{number}"  # an id is given once
            store.keep(name, entry(b"x" * size))
            if size + ENTRY_BYTES <= 4 * ENTRY_BYTES:
                alive[name] = entry(b"x" * size), clock.now_s + 60
            while len(alive) > 3 or sum(e.size_bytes for e, _ in alive.values()) > 4 * ENTRY_BYTES:
                alive.pop(next(iter(alive)))
        elif what == "find":
            assert (store.find(name, "") is not None) == (name in alive)
            if name in alive:
                alive[name] = alive.pop(name)[0], clock.now_s + 60
        else:
            assert store.forget(name, "") == (alive.pop(name, None) is not None)
        if what != "wait":
            assert len(store) == len(alive)
            assert store.size_bytes == sum(e.size_bytes for e, _ in alive.values())


# Pages.

ITEMS = [message(f"msg_{i}") for i in range(5)]


@pytest.mark.parametrize(
    ("query", "names", "more"),
    [
        ({}, "43210", False),
        ({"order": "asc"}, "01234", False),
        ({"order": "asc", "limit": "2"}, "01", True),
        ({"order": "asc", "limit": "2", "after": "msg_1"}, "23", True),
        ({"limit": "2", "after": "msg_1"}, "0", False),
        ({"after": "msg_0"}, "", False),
    ],
)
def test_a_page(query: dict[str, str], names: str, more: bool) -> None:
    told = page(ITEMS, wish_of(query))
    assert "".join(item.id[-1] for item in told.data) == names
    assert told.has_more is more
    assert (told.first_id[-1:], told.last_id[-1:]) == (names[:1], names[-1:])


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"order": "random"}, "order"),
        ({"after": "msg_9"}, "after"),
    ],
)
def test_a_page_that_cannot_be(query: dict[str, str], param: str) -> None:
    with pytest.raises(Fault) as caught:
        page(ITEMS, wish_of(query))
    assert caught.value.metadata[PARAM] == param


@given(st.integers(0, 30), st.integers(1, 7), st.booleans())
def test_pages_one_after_another_are_all_items(count: int, limit: int, newest: bool) -> None:
    items = [message(f"msg_{i}") for i in range(count)]
    found: list[Any] = []
    told = page(items, PageWish(limit, newest))
    found += told.data
    while told.has_more:
        told = page(items, PageWish(limit, newest, told.last_id))
        found += told.data
    assert found == (items[::-1] if newest else items)


# A run.


def running(owner: str = "") -> Run:
    response = framed(ResponsesBody("m", "Hi"), (), "resp_1", 5)
    return Run(owner, Writer(response, str), [])


class Engine:
    """Says one thing, then waits until it is released; remembers that it was closed."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.closed = False

    async def __call__(self) -> AsyncGenerator[Generated, None]:
        try:
            yield pb.GenerateResponse(text="Hel")
            await self.released.wait()
            yield pb.GenerateResponse(text="lo")
        finally:
            self.closed = True


async def test_stopping_ends_the_wait_and_the_work() -> None:
    run, engine = running(), Engine()
    messages = run.until_stopped(engine())
    await anext(messages)
    waiting = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    run.stop()
    with pytest.raises(Fault) as caught:
        await asyncio.wait_for(waiting, DEADLINE_S)
    assert (caught.value.reason, engine.closed) == (Reason.CANCELLED, True)
    assert not waiting.cancelled()
    assert json.loads(run.writer.body())["status"] == "cancelled"


async def test_stopping_while_a_message_is_written_ends_behind_it() -> None:
    run, engine = running(), Engine()
    engine.released.set()
    messages = run.until_stopped(engine())
    await anext(messages)
    run.stop()
    with pytest.raises(Fault) as caught:
        await anext(messages)
    assert (caught.value.reason, engine.closed) == (Reason.CANCELLED, True)


async def test_who_else_cancels_goes_first() -> None:
    run, engine = running(), Engine()

    async def consume() -> None:
        async for _ in run.until_stopped(engine()):
            pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0)
    run.stop()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.closed


def test_a_run_is_its_owners_and_over_at_the_end() -> None:
    runs, run = InFlight(), running("alice")
    with runs.holding(run):
        assert runs.find("resp_1", "alice") is run
        assert runs.find("resp_1", "bob") is None
        assert not run.over.is_set()
    assert runs.find("resp_1", "alice") is None
    assert run.over.is_set()
