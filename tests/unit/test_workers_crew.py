"""The crew when processes cannot be started, or are not of use."""

import asyncio
import socket
import subprocess
import sys

import pytest

from chassis.backoff import Backoff
from edge.workers.calls import FINISH
from edge.workers.child import Worker
from edge.workers.crew import Crew
from edge.workers.link import Bound, Link

DEADLINE_S = 5.0


async def test_a_start_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, often = 0, asyncio.Event()

    async def start(_slot: int, _link: Link) -> Worker:
        nonlocal tries
        tries += 1
        if tries == 3:
            often.set()
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(Backoff, "delay_s", lambda *_: 0.0)
    crew = Crew(1, start, (), {}, 1000)
    crew.begin()
    await asyncio.wait_for(often.wait(), DEADLINE_S)
    assert not crew.gave_up.is_set()
    with socket.socket() as connection:
        assert crew.take(connection) is False  # nobody is there
    await crew.finish(DEADLINE_S)


async def test_who_cannot_use_the_configuration_ends_all() -> None:
    async def start(_slot: int, link: Link) -> Worker:
        ours, theirs = socket.socketpair()
        theirs.close()
        await link.connect(ours)
        process = _ends_with(2)
        return Worker(process, link, socket.socket())

    crew = Crew(2, start, (), {}, 1000)
    crew.begin()
    await asyncio.wait_for(crew.gave_up.wait(), DEADLINE_S)
    await crew.finish(DEADLINE_S)


async def test_a_worker_that_was_being_started_hears_that_it_is_over() -> None:
    starting, go_on, told = asyncio.Event(), asyncio.Event(), asyncio.Event()
    process = _waits()
    assert process.stdin is not None

    async def start(_slot: int, link: Link) -> Worker:
        starting.set()
        await go_on.wait()
        ours, theirs = socket.socketpair()
        await link.connect(ours)
        await Link(1000, [Bound(FINISH, lambda _: told.set())]).connect(theirs)
        return Worker(process, link, socket.socket())

    crew = Crew(1, start, (), {}, 1000)
    crew.begin()
    await asyncio.wait_for(starting.wait(), DEADLINE_S)
    ending = asyncio.create_task(crew.finish(DEADLINE_S))
    await asyncio.sleep(0)  # it has told all whom it knows
    go_on.set()
    await asyncio.wait_for(told.wait(), DEADLINE_S)
    process.stdin.close()
    await ending
    assert process.returncode == 0


def _waits() -> "subprocess.Popen[bytes]":
    """For the end of what it reads."""
    argv = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    return subprocess.Popen(argv, stdin=subprocess.PIPE)


def _ends_with(status: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({status})"])
