"""What the access layer says of how a request ended, against small applications."""

import asyncio
from typing import Any

import pytest
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chassis.errors import Fault, Reason
from edge import errors
from edge.access import Access
from edge.sse import Patience, Source, stream_events

DEADLINE_S = 10.0
SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}
HEAD = {"type": "http.response.start", "status": 200, "headers": []}
QUICK = Patience(keepalive_s=0.01, stall_s=0.01)


async def connected() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def takes(_message: Message) -> None:
    """A client that reads."""


async def takes_nothing(message: Message) -> None:
    if message["type"] == "http.response.body":
        await asyncio.Event().wait()


async def answers(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send(dict(HEAD))
    await send({"type": "http.response.body", "body": b"{}"})


async def refuses(scope: Scope, receive: Receive, send: Send) -> None:
    await errors.response(Fault(Reason.QUEUE_FULL, "Full."))(scope, receive, send)


async def is_left(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send(dict(HEAD))
    await send({"type": "http.response.body", "body": b"half", "more_body": True})


async def breaks_at_once(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise ZeroDivisionError


async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
    await is_left(scope, receive, send)
    raise ZeroDivisionError


async def crashing() -> Source:
    yield b"data: half\n\n"
    raise Fault(Reason.ENGINE_CRASHED, "The engine died.")


async def streams(_scope: Scope, receive: Receive, send: Send) -> None:
    await stream_events(crashing(), QUICK, receive, send)


async def told_of(app: ASGIApp, send: Send = takes) -> tuple[int, str]:
    with structlog.testing.capture_logs() as lines:
        async with asyncio.timeout(DEADLINE_S):
            await Access(app, write_log=True)(dict(SCOPE), connected, send)
    (line,) = [line for line in lines if line["event"] == "request"]
    return line["status"], line["outcome"]


@pytest.mark.parametrize(
    ("app", "status", "outcome"),
    [
        (answers, 200, "ok"),
        (refuses, 429, "queue_full"),
        (is_left, 499, "cancelled"),
        (breaks, 499, "internal"),
        (breaks_at_once, 500, "internal"),
        (streams, 200, "engine_crashed"),
    ],
)
async def test_the_line_says_how_it_ended(app: ASGIApp, status: int, outcome: str) -> None:
    assert await told_of(app) == (status, outcome)


async def test_a_client_that_takes_nothing_is_a_slow_reader() -> None:
    assert await told_of(streams, takes_nothing) == (499, "slow_reader")


async def test_a_failure_is_not_held_against_the_next_request_of_a_task() -> None:
    assert [await told_of(app) for app in (streams, answers)] == [
        (200, "engine_crashed"),
        (200, "ok"),
    ]
