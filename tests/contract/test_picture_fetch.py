"""Pictures behind URLs, from a real server on this machine: what is fetched, what is refused."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from edge.body import MIB, Bodies
from edge.pictures import addresses
from edge.pictures.fetch import MOST_URL_CHARS, Fetch, FetchRules
from edge.pictures.source import PictureSource, from_words
from edge.pictures.upload import Upload
from tests.picture_kit import PNG, PNG_WORDS

HOST = "127.0.0.1"
RULES = FetchRules(
    max_bytes=MIB, within_s=5.0, redirects=2, allow_private=False, allow_hosts=frozenset((HOST,))
)

Write = Callable[[bytes], Awaitable[None]]
Page = Callable[[Write], Awaitable[None]]


def page(body: bytes, status: str = "200 OK", **headers: str) -> Page:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{lines}\r\n"

    async def serve(write: Write) -> None:
        await write(head.encode() + body)

    return serve


def moved(place: str, status: str = "302 Found") -> Page:
    return page(b"", status, Location=place)


async def dripping(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n\r\n")
    await write(PNG[:4])
    await asyncio.Event().wait()


async def endless(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n\r\n" + PNG)
    while True:
        await write(b"\0" * 65536)


async def silent(_write: Write) -> None:
    await asyncio.Event().wait()


class Elsewhere:
    """A server that answers each path as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {"/a.png": page(PNG)}
        self.asked: list[str] = []
        self.port = 0

    def url(self, path: str = "/a.png", host: str = HOST) -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.asked.append(head)
            await self.pages[head.split()[1]](write)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def elsewhere() -> AsyncIterator[Elsewhere]:
    there = Elsewhere()
    serving: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(there.serve(reader, writer)))

    server = await asyncio.start_server(serve, HOST, 0)
    there.port = server.sockets[0].getsockname()[1]
    yield there
    server.close()
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


@asynccontextmanager
async def fetching(rules: FetchRules = RULES) -> AsyncIterator[Callable[[str], Awaitable[bytes]]]:
    fetch = Fetch(rules)
    try:
        yield lambda url: fetch.picture(url, "image", lambda _count: None)
    finally:
        await fetch.close()


async def refused(url: str, rules: FetchRules = RULES) -> Fault:
    async with fetching(rules) as get:
        with pytest.raises(Fault) as caught:
            await get(url)
    assert caught.value.metadata == {"param": "image"}
    assert caught.value.row.http in (400, 413)
    return caught.value


async def test_a_picture_is_fetched_without_anything_of_ours(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    elsewhere.pages["/a.png?b=1"] = page(PNG, Set_Cookie="c=1")
    async with fetching() as get:
        for _ in range(2):
            assert await get(elsewhere.url("/a.png?b=1#part")) == PNG
    for head in elsewhere.asked:
        assert head.startswith("GET /a.png?b=1 HTTP/1.1\r\n")
        assert f"host: {HOST}:{elsewhere.port}\r\n" in head.lower()
        assert "accept-encoding: identity" in head.lower()
        assert "cookie" not in head.lower()


async def test_redirects_are_followed_so_far(elsewhere: Elsewhere) -> None:
    elsewhere.pages |= {
        "/1": moved("/2", "301 Moved"),
        "/2": moved(elsewhere.url("/a.png"), "307 Temporary"),
        "/0": moved("/1"),
        "/x": page(b"", "302 Found"),
    }
    async with fetching() as get:
        assert await get(elsewhere.url("/1")) == PNG
    assert "redirects more than 2 times" in (await refused(elsewhere.url("/0"))).message
    assert "redirects to nowhere" in (await refused(elsewhere.url("/x"))).message


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("http://127.0.0.2/a.png", "loopback"),
        ("//127.0.0.2/a.png", "loopback"),
        ("http://[::ffff:127.0.0.1]/a.png", "notation of IPv6"),
        ("http://2130706433/a.png", "loopback"),
        ("file:///etc/passwd", "only http and https"),
        ("http://user:pass@127.0.0.1/", "credentials"),
        ("http://localhost:22/", "port 22"),
        ("http://[::1", "no valid URL"),
        ("http://xn--/", "no valid URL"),
        ("/" + "a" * MOST_URL_CHARS, "longer than"),
    ],
)
async def test_every_hop_is_judged(elsewhere: Elsewhere, place: str, says: str) -> None:
    elsewhere.pages["/away"] = moved(place)
    assert says in (await refused(elsewhere.url("/away"))).message
    assert len(elsewhere.asked) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://localhost/", "loopback"),
        ("http://127.0.0.2/", "loopback"),
        ("http://127.1/", "loopback"),
        ("http://2130706434/", "loopback"),
        ("http://0177.0.0.2/", "no valid URL"),
        ("http://0x7f.0.0.2/", "loopback"),
        ("http://[::1]/", "loopback"),
        ("http://[::]/", "unspecified"),
        ("http://0/", "unspecified"),
        ("http://[::ffff:127.0.0.1]/", "notation of IPv6"),
        ("http://[::ffff:7f00:1]/", "notation of IPv6"),
        ("http://[64:ff9b::7f00:1]/", "translated"),
        ("http://169.254.169.254/latest/meta-data", "link-local"),
        ("http://10.0.0.1/", "private"),
        ("http://192.168.1.1/", "private"),
        ("http://[fd00::1]/", "private"),
        ("http://100.64.0.1/", "provider"),
        ("http://224.0.0.1/", "multicast"),
        ("http://255.255.255.255/", "reserved"),
        ("http://8.8.8.8:8080/", "port 8080"),
        ("https://8.8.8.8:22/", "port 22"),
        ("http://a:b@8.8.8.8/", "credentials"),
        ("http:///a.png", "no host"),
        ("http://[::1/", "no valid URL"),
        ("http://a\x00b/", "no valid URL"),
        ("http://xn--/", "no valid URL"),
        ("http://8.8.8.8/" + "a" * MOST_URL_CHARS, "longer than"),
        ("http://nowhere.invalid/", "no address"),
        (f"http://{'a' * 64}.example/", ""),
        ("ftp://8.8.8.8/", "only http and https"),
    ],
)
async def test_what_is_not_fetched(url: str, says: str) -> None:
    assert says in (await refused(url)).message


async def test_one_bad_address_of_several_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    def both(_host: str, port: int, **_more: Any) -> Any:
        return [(2, 1, 6, "", (address, port)) for address in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert "private" in (await refused("http://two.example/")).message


async def test_the_address_that_was_judged_is_the_one_that_is_asked(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is resolved once more, by whoever connects, would lead elsewhere."""
    real, looked = socket.getaddrinfo, []

    def rebinding(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host != "rebinding.example":
            return real(host, port, *more, **named)
        looked.append(host)
        address = HOST if len(looked) == 1 else "127.0.0.9"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(addresses, "refusal", lambda a: "" if a == HOST else "wrong")
    rules = replace(RULES, allow_hosts=frozenset(("rebinding.example",)))
    async with fetching(rules) as get:
        assert await get(elsewhere.url(host="rebinding.example")) == PNG
    assert len(looked) == 1
    assert f"host: rebinding.example:{elsewhere.port}\r\n" in elsewhere.asked[0].lower()


async def test_another_address_is_tried_where_nobody_listens(
    elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def two(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host != "two.example":
            return real(host, port, *more, **named)
        return [(2, 1, 6, "", (address, port)) for address in ("127.0.0.9", HOST)]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    async with fetching(replace(RULES, allow_hosts=frozenset(("two.example",)))) as get:
        assert await get(elsewhere.url(host="two.example")) == PNG


async def test_private_addresses_may_be_allowed(elsewhere: Elsewhere) -> None:
    closed = replace(RULES, allow_hosts=frozenset())
    assert "port" in (await refused(elsewhere.url(), closed)).message
    async with fetching(replace(closed, allow_private=True)) as get:
        assert await get(elsewhere.url()) == PNG
    assert "loopback" in (await refused("http://127.0.0.3/", RULES)).message


@pytest.mark.parametrize(
    ("answer", "says", "reason"),
    [
        (page(b"", "404 Not Found"), "status 404", Reason.INVALID_REQUEST),
        (page(b"", "204 No Content"), "status 204", Reason.INVALID_REQUEST),
        (page(b"\0" * (MIB + 1)), "larger than 1 MiB", Reason.PAYLOAD_TOO_LARGE),
        (endless, "larger than 1 MiB", Reason.PAYLOAD_TOO_LARGE),
        (
            page(gzip.compress(b"\0" * (64 * MIB), 9), Content_Encoding="gzip"),
            "compressed",
            Reason.INVALID_REQUEST,
        ),
        (page(PNG, Transfer_Encoding="gzip"), "connection failed", Reason.INVALID_REQUEST),
    ],
)
async def test_what_comes_is_bounded(
    elsewhere: Elsewhere, answer: Page, says: str, reason: Reason
) -> None:
    elsewhere.pages["/a.png"] = answer
    fault = await refused(elsewhere.url())
    assert says in fault.message
    assert fault.reason is reason


@pytest.mark.parametrize("answer", [dripping, silent])
async def test_what_does_not_come_in_time_is_given_up(elsewhere: Elsewhere, answer: Page) -> None:
    elsewhere.pages["/a.png"] = answer
    fault = await refused(elsewhere.url(), replace(RULES, within_s=0.2))
    assert "was not there within 0.2 s" in fault.message


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
        fault = await refused(f"http://{HOST}:{port}/")
    assert "connection failed (ConnectError)" in fault.message


# Sources.


async def test_what_is_fetched_counts_among_the_bodies(elsewhere: Elsewhere) -> None:
    bodies, fetch = Bodies(100, len(PNG) * 2, 5.0), Fetch(RULES)
    try:
        with bodies.room() as room:
            source = PictureSource(fetch, room)
            for _ in range(2):
                assert (await source.media(elsewhere.url(), "image")).data == PNG
            assert bodies.held == len(PNG) * 2
            with pytest.raises(Fault) as caught:
                await source.media(elsewhere.url(), "image")
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
        assert bodies.held == 0
    finally:
        await fetch.close()


@pytest.mark.parametrize(
    "value",
    [
        Upload(PNG, "text/html", "a.html"),
        PNG_WORDS,
        PNG_WORDS[:40] + "\n" + PNG_WORDS[40:],
        f"data:image/jpeg;base64,{PNG_WORDS}",
        f"DATA:;charset=x;BASE64,{PNG_WORDS}",
    ],
)
async def test_a_picture_is_what_its_bytes_say(value: str | Upload) -> None:
    fetch = Fetch(RULES)
    with Bodies(MIB, MIB, 5.0).room() as room:
        media = await PictureSource(fetch, room).media(value, "image")
    await fetch.close()
    assert (media.data, media.mime_type) == (PNG, "image/png")


@pytest.mark.parametrize(
    "value", ["A", "*", "data:,x", "data:image/png;base64", "javascript:1", "gopher://a", "é"]
)
def test_words_that_are_no_picture(value: str) -> None:
    with pytest.raises(Fault) as caught:
        assert from_words(value, "image") == b"never"
    assert caught.value.metadata["param"] == "image"


async def test_pictures_of_one_request_are_bounded_together() -> None:
    large = Upload(PNG + b"\0" * (30 * MIB), "", "")
    fetch = Fetch(RULES)
    with Bodies(MIB, MIB, 5.0).room() as room:
        source = PictureSource(fetch, room)
        for _ in range(2):
            await source.media(large, "image")
        with pytest.raises(Fault) as caught:
            await source.media(large, "image")
    await fetch.close()
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE
