"""The way past the router: who takes it, and what becomes of faults and bugs on it."""

import subprocess
import sys
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from chassis.errors import Fault, Reason
from edge.shortcut import Shortcut

START = {"type": "http.response.start", "status": 200, "headers": []}


def answering(text: bytes) -> ASGIApp:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": text})

    return app


def raising(error: Exception, *, begun: bool = False) -> ASGIApp:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        if begun:
            await send(START)
        raise error

    return app


class Sent:
    """What was sent; refuses a second beginning, as the server does."""

    def __init__(self) -> None:
        self.status, self.body = 0, b""

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            if self.status:
                raise RuntimeError("begun twice")
            self.status = message["status"]
        self.body += message.get("body", b"")


async def ask(endpoint: ASGIApp, method: str = "POST", path: str = "/v1/x") -> tuple[Scope, Sent]:
    scope: Scope = {"type": "http", "method": method, "path": path, "headers": []}
    sent = Sent()

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    app = Shortcut(answering(b"router"), {"/v1/x": endpoint, "/v1/{name}/y": endpoint})
    try:
        await app(scope, receive, sent)
    except ValueError as bug:
        scope["bug"] = bug
    return scope, sent


@pytest.mark.parametrize(
    ("method", "path", "by"),
    [
        ("POST", "/v1/x", b"endpoint"),
        ("GET", "/v1/x", b"router"),
        ("POST", "/v1/x/", b"router"),
        ("POST", "/v1/{name}/y", b"router"),
        ("POST", "/v1/z", b"router"),
    ],
)
async def test_what_is_named_exactly_takes_it(method: str, path: str, by: bytes) -> None:
    scope, sent = await ask(answering(b"endpoint"), method, path)
    assert (sent.status, sent.body) == (200, by)
    # The access layer counts by the route, and the router tells its own.
    told = getattr(scope.get("route"), "path", None)
    assert told == ("/v1/x" if by == b"endpoint" else None)


async def test_a_fault_is_its_answer() -> None:
    scope, sent = await ask(raising(Fault(Reason.MODEL_NOT_FOUND, "There is none.")))
    assert sent.status == 404
    assert b"There is none." in sent.body
    assert "bug" not in scope


async def test_a_bug_is_answered_without_its_words_and_raised() -> None:
    scope, sent = await ask(raising(ValueError("a secret")))
    assert sent.status == 500
    assert b"secret" not in sent.body
    assert str(scope["bug"]) == "a secret"


async def test_after_the_first_byte_nothing_is_begun_again() -> None:
    with pytest.raises(RuntimeError, match="begun twice"):
        await ask(raising(ValueError("late"), begun=True))


def test_grpc_knows_how_the_edge_asks_it_to_read() -> None:
    """What is asked for by name may go with a new version: it would say so, and nothing more."""
    code = (
        "import asyncio, edge\n"
        "from chassis.channel import open_channel\n"
        "async def opened(): await open_channel('unix:/nowhere').close()\n"
        "asyncio.run(opened())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "experiment" not in ran.stderr
