"""Several edges behind one Envoy: who is asked, who is left out, and what is lost (nothing)."""

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.envoy_kit import (
    SELF_SIGNED,
    Edge,
    Envoy,
    another_edge,
    edge_of,
    fronting,
    running_envoy,
    services_of,
)
from tests.integration.house import House, running, until

LINGER_S = 4
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 8,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        loaded = httpx.post(f"{house.url}{CHAT}", json=BODY, timeout=60)
        assert loaded.status_code == 200, loaded.text
        yield house


@pytest.fixture
def edges(house: House) -> Iterator[tuple[Edge, Edge]]:
    with (
        another_edge(house, "one", linger_s=LINGER_S, drain_s=20) as one,
        another_edge(house, "two", linger_s=LINGER_S, drain_s=20) as two,
    ):
        yield one, two


@pytest.fixture
async def envoy(
    house: House, edges: tuple[Edge, Edge], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Envoy]:
    addresses = [edge.address for edge in edges]
    with running_envoy(tmp_path_factory.mktemp("e"), addresses, services_of(house)) as envoy:
        await envoy.settled([edge.port for edge in edges])
        yield envoy


@pytest.fixture
async def http(envoy: Envoy) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=envoy.url("plain"), timeout=60, trust_env=False
    ) as client:
        yield client


async def ask(http: httpx.AsyncClient, **headers: str) -> None:
    answer = await http.post(CHAT, json=BODY, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("header", ["x-cohabit-affinity", "authorization", "x-api-key"])
async def test_what_belongs_together_goes_to_one_house(
    envoy: Envoy, http: httpx.AsyncClient, header: str
) -> None:
    before = await envoy.served()
    for _ in range(6):
        await ask(http, **{header: "conversation-1"})
    asked = {port: count - before[port] for port, count in (await envoy.served()).items()}
    assert sorted(asked.values()) == [0, 6]


async def test_a_conversation_goes_before_a_key_and_keys_are_spread(
    envoy: Envoy, http: httpx.AsyncClient
) -> None:
    for key in range(6):
        await ask(http, **{"x-cohabit-affinity": "one", "authorization": f"Bearer {key}"})
    together = await envoy.served()
    assert 0 in together.values(), "the conversation decides, whatever the key"
    for key in range(20):
        await ask(http, authorization=f"Bearer {key}")
    apart = await envoy.served()
    assert all(apart[port] > together[port] for port in apart)


async def test_a_killed_edge_is_not_noticed(
    envoy: Envoy, edges: tuple[Edge, Edge], http: httpx.AsyncClient
) -> None:
    one, two = edges
    one.kill()
    for key in range(12):  # begun before anybody has seen that it is gone: tried at the other
        await ask(http, authorization=f"Bearer {key}")
    await envoy.settled([two.port])
    one.start()
    await envoy.settled([one.port, two.port])


async def test_a_long_prompt_is_tried_elsewhere_too(
    envoy: Envoy, edges: tuple[Edge, Edge], http: httpx.AsyncClient
) -> None:
    long = BODY | {"messages": [{"role": "user", "content": "word " * 300_000}]}
    edges[0].kill()
    for key in range(6):
        answer = await http.post(CHAT, json=long, headers={"authorization": f"Bearer {key}"})
        assert answer.json()["error"]["code"] == "context_length_exceeded"


async def test_a_frozen_edge_is_left_out_and_comes_back(
    envoy: Envoy, edges: tuple[Edge, Edge], http: httpx.AsyncClient
) -> None:
    one, two = edges
    one.signal(signal.SIGSTOP)
    try:
        await envoy.settled([two.port])
        for key in range(12):
            await ask(http, authorization=f"Bearer {key}")
    finally:
        one.signal(signal.SIGCONT)
    await envoy.settled([one.port, two.port])


async def test_a_rolling_restart_loses_nothing(
    envoy: Envoy, edges: tuple[Edge, Edge], http: httpx.AsyncClient
) -> None:
    over = asyncio.Event()

    async def client(key: int) -> int:
        done = 0
        while not over.is_set():
            await ask(http, authorization=f"Bearer {key}")
            async with http.stream("POST", CHAT, json=BODY | {"stream": True}) as stream:
                assert stream.status_code == 200
                assert [line async for line in stream.aiter_lines() if line][-1] == "data: [DONE]"
            done += 2
        return done

    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(client(key)) for key in range(6)]
        for edge, other in (edges, edges[::-1]):
            edge.signal(signal.SIGTERM)
            assert await envoy.settled([other.port]) < LINGER_S, "while it still serves"
            assert await edge.ended() == 0
            edge.start()
            await envoy.settled([one.port for one in edges])
        over.set()
    assert all(one.result() > 2 for one in clients)


async def test_a_stream_outlives_the_draining_of_its_edge(
    house: House, envoy: Envoy, edges: tuple[Edge, Edge], http: httpx.AsyncClient
) -> None:
    body = BODY | {"stream": True, "max_tokens": 600}
    async with http.stream("POST", CHAT, json=body) as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        (port,) = (port for port, count in (await envoy.served()).items() if count)
        (edge,) = (edge for edge in edges if edge.port == port)
        edge.signal(signal.SIGTERM)
        assert [line async for line in lines if line][-1] == "data: [DONE]"
    assert await edge.ended() == 0


class Broken(asyncio.Protocol):
    """None of ours: ready whenever it is asked, and of no use. Status 0: it hangs up."""

    def __init__(self, status: int, heads: list[bytes]) -> None:
        self._status, self._heads = status, heads

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heads.append(data)
        status = 200 if data.startswith(b"GET /readyz ") else self._status
        if not status:
            self._transport.close()
            return
        self._transport.write(b"HTTP/1.1 %d Said\r\ncontent-length: 0\r\n\r\n" % status)


@asynccontextmanager
async def broken(status: int, heads: list[bytes] | None = None) -> AsyncIterator[int]:
    """Its port; `heads` gets what it was asked."""
    seen = [] if heads is None else heads
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Broken(status, seen), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


CLAIMS = {
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-host": "localhost",
    "forwarded": "for=127.0.0.1",
    "x-real-ip": "127.0.0.1",
    "true-client-ip": "127.0.0.1",
    "x-envoy-internal": "true",
    "x-envoy-max-retries": "9",
    "x-original-url": "/v1/admin/models",
    "x_forwarded_for": "127.0.0.1",
}


async def test_an_edge_is_told_where_a_call_comes_from_by_envoy_alone(
    house: House, tmp_path_factory: pytest.TempPathFactory
) -> None:
    heads: list[bytes] = []
    async with broken(418, heads) as port:
        folder, edges = tmp_path_factory.mktemp("e"), [f"127.0.0.1:{port}"]
        with running_envoy(folder, edges, services_of(house)) as envoy:
            await envoy.settled([port])
            # Another address of loopback is whom Envoy has to name.
            by = httpx.AsyncHTTPTransport(local_address="127.0.0.9")
            async with httpx.AsyncClient(base_url=envoy.url("plain"), transport=by) as http:
                await http.get("/v1/models", headers=CLAIMS)
    (head,) = (one.decode() for one in heads if b" /v1/models " in one)
    told = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
    assert told["x-forwarded-for"] == "127.0.0.9"
    kept = {name for name, value in CLAIMS.items() if told.get(name) == value}
    assert kept == set()


@pytest.mark.parametrize(
    ("status", "ejected"),
    [(0, True), (500, True), (502, True), (503, False), (504, False), (429, False)],
)
async def test_who_is_broken_is_ejected_and_who_is_full_is_not(
    house: House, tmp_path_factory: pytest.TempPathFactory, status: int, *, ejected: bool
) -> None:
    async with broken(status) as port:
        addresses = [edge_of(house), f"127.0.0.1:{port}"]
        with running_envoy(tmp_path_factory.mktemp("e"), addresses, services_of(house)) as envoy:
            await envoy.settled([house.port, port])
            async with httpx.AsyncClient(base_url=envoy.url("plain"), trust_env=False) as http:
                for key in range(40):
                    await http.get("/v1/models", headers={"authorization": f"Bearer {key}"})
                held = (await envoy.hosts())[port]
                assert ("failed_outlier_check" in held) == ejected
                if ejected:
                    after = await http.get("/v1/models", headers={"authorization": "Bearer 1"})
                    assert after.status_code == 200


async def test_too_many_at_once_are_told_so(
    house: House, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def lower(text: str) -> str:
        assert "max_tokens: 400" in text
        return text.replace("max_tokens: 400", "max_tokens: 5").replace(
            "tokens_per_fill: 200", "tokens_per_fill: 1"
        )

    with fronting(house, tmp_path_factory.mktemp("e"), lower) as envoy:
        async with httpx.AsyncClient(base_url=envoy.url("plain"), trust_env=False) as http:
            answers = [await http.get("/v1/models") for _ in range(12)]
            anthropic = await http.post("/v1/messages", json={})
            probe = await http.get("/health")
    assert [one.status_code for one in answers[:5]] == [200] * 5
    refused = next(one for one in answers if one.status_code == 429)
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["x-ratelimit-remaining"] == "0"
    assert anthropic.status_code == 429
    assert anthropic.json()["error"]["type"] == "rate_limit_error"
    assert probe.status_code == 200, "who watches the house is not counted"


async def shown(port: int) -> str:
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


async def taken_up(envoy: Envoy, before: str) -> None:
    async def true() -> bool:
        return await shown(envoy.ports["public"]) == envoy.certificate.read_text() != before

    await until(true, 10, "the new certificate is shown")


async def sign(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(SELF_SIGNED, str(folder))
    assert await process.wait() == 0


async def test_a_renewed_certificate_is_taken_up(
    house: House, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("e")
    with fronting(house, folder) as envoy:
        before = await shown(envoy.ports["public"])
        await sign(folder / "tls")
        await taken_up(envoy, before)


async def test_a_secret_of_kubernetes_that_changes_is_taken_up(
    house: House, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """There the files are links through a folder that is exchanged as a whole."""
    folder = tmp_path_factory.mktemp("e")
    tls = folder / "tls"
    await sign(tls / "..first")
    (tls / "..data").symlink_to("..first")
    for name in ("tls.crt", "tls.key"):
        (tls / name).symlink_to(f"..data/{name}")
    with fronting(house, folder) as envoy:
        before = await shown(envoy.ports["public"])
        await sign(tls / "..second")
        (tls / "..data_tmp").symlink_to("..second")
        (tls / "..data_tmp").rename(tls / "..data")
        await taken_up(envoy, before)
