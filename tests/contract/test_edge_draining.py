"""An edge that stops: balancers can see it, and no request is lost between it and its clients."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from edge.app import open_app
from edge.listening import Listener, bind
from edge.server import QUIET_S, Connections, HttpServer
from edge.standing import Standing
from tests.edge_kit import CHAT, DEADLINE_S, Peers, edge_config, text

PATH = "/v1/chat/completions"
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


class Stopping:
    """A served edge, its peers and its clients."""

    def __init__(self, peers: Peers, server: HttpServer, address: tuple[str, int]) -> None:
        self.peers, self.server, self.address = peers, server, address
        self.http = httpx.AsyncClient(
            base_url=f"http://{address[0]}:{address[1]}", timeout=DEADLINE_S, trust_env=False
        )


@asynccontextmanager
async def served(
    folder: Path,
    linger_s: float,
    drain_s: float = 5.0,
    kind: Callable[[Path], Peers] = Peers,
) -> AsyncIterator[Stopping]:
    peers, standing, config = kind(folder), Standing(), edge_config()
    async with (
        peers.scheduler(),
        peers.engine(),
        open_app(
            config, peers.scheduler_address, {"llm": peers.engine_address}, peers.engine_address,
            standing=standing,
        ) as app,
    ):  # fmt: skip
        server = HttpServer(app, *config.address, drain_s, linger_s, standing)
        it = Stopping(peers, server, await server.start())
        try:
            yield it
        finally:
            await it.http.aclose()


async def says_hello_when(gate: asyncio.Event, peers: Peers) -> None:
    async def script(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield text("Oh. ")
        await gate.wait()
        async for message in Peers.says_hello(peers, _request, _context):
            yield message

    peers.generate = script


async def test_balancers_see_it_and_may_still_send_for_a_while(tmp_path: Path) -> None:
    async with served(tmp_path, linger_s=1.0) as it:
        assert (await it.http.get("/readyz")).status_code == 200
        stopping = asyncio.create_task(it.server.stop())
        await asyncio.sleep(0)
        ready = await it.http.get("/readyz")
        assert (ready.status_code, ready.headers["connection"]) == (503, "close")
        assert (await it.http.get("/health")).json()["status"] == "draining"
        late = await it.http.post(PATH, json=CHAT)  # a new connection each
        assert (late.status_code, late.headers["connection"]) == (200, "close")
        await stopping
        with pytest.raises(httpx.ConnectError):
            await it.http.get("/health")


async def test_an_answer_that_is_being_made_says_close_and_one_in_the_middle_ends_whole(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, linger_s=0.0) as it:
        gate = asyncio.Event()
        await says_hello_when(gate, it.peers)
        body = asyncio.create_task(it.http.post(PATH, json=CHAT))
        async with it.http.stream("POST", PATH, json=CHAT | {"stream": True}) as s:
            lines = s.aiter_lines()
            await anext(lines)
            await it.peers.admitted(2)
            stopping = asyncio.create_task(it.server.stop())
            await asyncio.sleep(0)
            gate.set()
            rest = [line async for line in lines]
            assert rest[-2] == "data: [DONE]"
            assert "connection" not in s.headers  # they were out before
        assert (await body).headers["connection"] == "close"
        await stopping


async def test_a_request_on_a_kept_connection_is_answered_however_late_it_comes(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, linger_s=0.0) as it:
        reader, writer = await asyncio.open_connection(*it.address)
        writer.write(GET)
        await reader.readuntil(b"}")
        stopping = asyncio.create_task(it.server.stop())
        await asyncio.sleep(QUIET_S / 2)  # half of the time that it is kept for
        writer.write(GET)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nconnection: close\r\n" in answer
        writer.close()
        await stopping


async def test_a_quiet_connection_is_closed(tmp_path: Path) -> None:
    async with served(tmp_path, linger_s=0.0) as it:
        reader, writer = await asyncio.open_connection(*it.address)
        writer.write(GET)
        await reader.readuntil(b"}")
        loop = asyncio.get_running_loop()
        stopping, began = asyncio.create_task(it.server.stop()), loop.time()
        assert await reader.read() == b""
        assert QUIET_S <= loop.time() - began < DEADLINE_S
        writer.close()
        await stopping


async def test_bytes_that_nobody_has_read_are_no_quiet(tmp_path: Path) -> None:
    async with served(tmp_path, linger_s=0.0) as it:
        with closing(socket.create_connection(it.address)) as client:
            await it.http.get("/health")  # the other one is served by now
            [quiet] = [one for one in it.server.connections() if one.cycle is None]
            client.sendall(GET)
            quiet.leave_if_quiet(0.0)
            assert not quiet.transport.is_closing()
            await asyncio.to_thread(client.recv, 15)
            quiet.leave_if_quiet(0.0)
            assert quiet.transport.is_closing()
        await it.server.stop()


async def test_who_stands_in_line_when_the_listener_closes_is_served() -> None:
    served: list[socket.socket] = []

    def take(connection: socket.socket) -> bool:
        served.append(connection)
        return True

    listener = Listener(bind("127.0.0.1", 0), take)
    clients = [socket.create_connection(listener.address) for _ in range(100)]
    await listener.close()  # it has never accepted before
    assert len(served) == 100
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(clients[0].getpeername())
    for end in (*served, *clients):
        end.close()


async def test_a_connection_that_nobody_can_take_is_offered_again() -> None:
    taken, refused = asyncio.Event(), 0

    def take(connection: socket.socket) -> bool:
        nonlocal refused
        if refused < 3:
            refused += 1
            return False
        connection.close()
        taken.set()
        return True

    listener = Listener(bind("127.0.0.1", 0), take)
    listener.start()
    with closing(socket.create_connection(listener.address)):
        await asyncio.wait_for(taken.wait(), DEADLINE_S)
    assert refused == 3
    await listener.close()


async def test_a_listener_closes_though_no_descriptor_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served: list[socket.socket] = []

    def take(connection: socket.socket) -> bool:
        served.append(connection)
        return True

    accept, failures = socket.socket.accept, iter((24, 24))

    def scarce(listener: socket.socket) -> Any:
        for number in failures:
            raise OSError(number, "Too many open files")
        return accept(listener)

    listener = Listener(bind("127.0.0.1", 0), take)
    address = listener.address
    with closing(socket.create_connection(address)):
        monkeypatch.setattr(socket.socket, "accept", scarce)
        await listener.close()
        assert len(served) == 1  # who stood in line has been taken as soon as it could be
        served[0].close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


async def test_a_connection_that_cannot_be_served_has_ended() -> None:
    async def app(*_: Any) -> None:
        raise AssertionError

    left = asyncio.Event()
    connections = Connections(app, Standing(), left.set)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as no_stream:
        connections.adopt(no_stream)
        assert connections.count == 1
        await asyncio.wait_for(left.wait(), DEADLINE_S)
    assert connections.count == 0


async def test_what_outlives_the_drain_time_has_a_last_word(tmp_path: Path) -> None:
    async with served(tmp_path, linger_s=0.0, drain_s=0.3) as it:
        it.peers.generate = it.peers.says_and_hangs
        async with it.http.stream("POST", PATH, json=CHAT | {"stream": True}) as s:
            lines = s.aiter_lines()
            await anext(lines)
            await it.server.stop()
            told = [line async for line in lines]
        assert any('"error"' in line for line in told)
        assert not any("[DONE]" in line for line in told)
