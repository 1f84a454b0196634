"""The crew when processes cannot be started, or are not of use."""

import asyncio
import socket
import subprocess
import sys

import pytest

from chassis.backoff import Backoff
from edge.workers.child import Worker
from edge.workers.crew import Crew
from edge.workers.link import Link

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


def _ends_with(status: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({status})"])
