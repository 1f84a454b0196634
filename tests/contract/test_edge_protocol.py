"""HTTP below the routes, byte for byte: headers without end, upgrades, HTTP/1.0, pipelining."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.protocol import MOST_HEADER_BYTES, Protocol
from tests.edge_kit import CHAT, DEADLINE_S, House, opened

GET = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n"
LAST = b"connection: close\r\n\r\n"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        yield house


@asynccontextmanager
async def connected(
    house: House,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield reader, writer
    finally:
        writer.transport.abort()


async def said(house: House, *pieces: bytes) -> bytes:
    """All that comes back for what is sent, to the end of the connection."""
    async with connected(house) as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()


def post(body: dict[str, Any], *headers: str, version: str = "1.1") -> bytes:
    raw = json.dumps(body).encode()
    lines = (f"POST /v1/chat/completions HTTP/{version}", "Host: x", *headers)
    return "\r\n".join([*lines, f"Content-Length: {len(raw)}", "", ""]).encode() + raw


def refusal(answer: bytes) -> tuple[int, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"content-type: application/json" in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    "pieces",
    [
        [GET + b"a: " + b"x" * MOST_HEADER_BYTES + b"\r\n\r\n"],
        [GET, *[b"a: " + b"x" * 8192 + b"\r\n"] * 9],
        [GET, b"a: ", *[b"x" * 8192] * 9],
        [b"GET /" + b"x" * MOST_HEADER_BYTES + b" HTTP/1.1\r\n\r\n"],
    ],
    ids=["one large", "many", "one without end", "request line"],
)
async def test_headers_are_bounded_in_size(house: House, pieces: list[bytes]) -> None:
    status, error = refusal(await said(house, *pieces))
    assert (status, error["code"]) == (431, "headers_too_large")
    assert str(MOST_HEADER_BYTES) in error["message"]


async def test_trailers_are_bounded_in_size(house: House) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    answer = await said(house, head + b"1\r\n{\r\n0\r\n", *[b"a: " + b"x" * 9000 + b"\r\n"] * 9)
    assert refusal(answer)[0] == 431


async def test_trailers_are_no_headers(house: House) -> None:
    raw = json.dumps(CHAT).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"%x\r\n%s\r\n0\r\nx-cohabit-tier: gold\r\n\r\n" % (len(raw), raw)
    answer = await said(house, head + body, post(CHAT, "Connection: close"))
    assert answer.count(b"HTTP/1.1 200 OK") == 2


async def test_headers_up_to_the_bound_and_bodies_beyond_it_pass(house: House) -> None:
    padding = f"a: {'x' * (MOST_HEADER_BYTES - 1024)}"
    chat = {**CHAT, "messages": [{"role": "user", "content": "x" * 300_000}]}
    answer = await said(house, post(chat, padding), post(chat, padding, "Connection: close"))
    assert answer.count(b"HTTP/1.1 200 OK") == 2


async def test_what_was_asked_before_endless_headers_is_answered(house: House) -> None:
    large = GET + b"a: " + b"x" * MOST_HEADER_BYTES + b"\r\n\r\n"
    answer = await said(house, post(CHAT) + large)
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b'"Hello"' in answer


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET, b"\r\n"])
async def test_headers_are_bounded_in_time(
    house: House, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(Protocol, "headers_s", 0.05)
    assert await said(house, sent) == b""


async def test_the_next_headers_of_a_connection_are_bounded_in_time(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "headers_s", 0.05)
    for pieces in ([GET + b"\r\n" + GET], [GET + b"\r\n", GET]):
        assert (await said(house, *pieces)).count(b"HTTP/1.1") == 1


async def test_an_idle_connection_and_a_long_answer_outlive_the_time_for_headers(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protocol, "headers_s", 0.02)
    house.peers.generate = house.peers.says_and_hangs
    async with connected(house) as (idle, idle_writer):
        idle_writer.write(GET + b"\r\n")
        await idle.readuntil(b'"list"')
        async with connected(house) as (reader, writer):
            writer.write(post({**CHAT, "stream": True}) + b"GET / HT")
            await reader.readuntil(b'"Hel"')
            # A connection that has only been opened ends when the time is up: here, five times.
            for _ in range(5):
                assert await said(house) == b""
            idle_writer.write(GET + LAST)
            assert b"200 OK" in await idle.read()
            assert not reader.at_eof()


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"NOPE\r\n\r\n", b"GET / HTTP/9\r\n\r\n"],
)
async def test_what_is_no_http_is_refused_in_the_envelope(house: House, sent: bytes) -> None:
    status, error = refusal(await said(house, sent))
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert "not a valid request of HTTP/1.1 (" in error["message"]


async def test_a_broken_body_is_refused_in_the_envelope(house: House) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    assert refusal(await said(house, head, b"nonsense\r\n"))[0] == 400


async def test_a_tunnel_is_refused(house: House) -> None:
    status, error = refusal(await said(house, b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n"))
    assert status == 400
    assert "CONNECT" in error["message"]


async def test_an_upgrade_is_passed_over(house: House) -> None:
    java = ("Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAEAAEAA", "Upgrade: h2c")
    whole = post(CHAT, *java)
    answer = await said(house, whole, whole[:-9], whole[-9:] + whole + GET + LAST)
    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert answer.count(b'"content":"Hello"') == 3


async def test_http_1_0_is_answered_without_chunks(house: House) -> None:
    answer = await said(house, post({**CHAT, "stream": True}, version="1.0"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"transfer-encoding" not in head
    assert body.startswith(b"data: ")
    assert body.endswith(b"data: [DONE]\n\n")
    assert b"404" in await said(house, b"GET /no HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_who_leaves_with_requests_sent_ahead_ends_the_first_and_begins_no_other(
    house: House, stream: bool
) -> None:
    house.peers.generate = house.peers.says_and_hangs
    async with connected(house) as (_, writer):
        writer.write(post({**CHAT, "stream": stream}) * 3)
        await house.peers.seen("generate")
    await house.peers.seen("generate over")
    await house.peers.seen("admit over")
    assert (await house.http.get("/v1/models")).status_code == 200
    assert len(house.peers.admits) == 1
