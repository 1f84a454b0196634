"""Edges are upgraded one after the other under load, and no request is lost.

The balancer is what any balancer is: it looks at /readyz every so often, sends requests over kept
connections to whoever is ready, and sends one elsewhere only when its connection was refused. What
breaks once a request is on its way is lost, and the test fails.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.edge_kit import CHAT, Peers, finish, text
from tests.edge_process import EdgeProcess, edge_process
from tests.integration.house import free_port, until

CLIENTS = 12
LOOK_S = 0.05
DEADLINE_S = 20.0


class Balancer:
    """Over the edges at these ports."""

    def __init__(self, ports: list[int]) -> None:
        self._ready = dict.fromkeys(ports, True)
        self._turn = itertools.cycle(ports)
        self._clients = {
            port: httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S, trust_env=False,
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=CLIENTS),
            )
            for port in ports
        }  # fmt: skip
        self.served: Counter[int] = Counter()
        self.lost: list[str] = []

    async def look(self) -> None:
        """Ask all of them, again and again."""
        while True:
            for port in self._ready:
                try:
                    url = f"http://127.0.0.1:{port}/readyz"
                    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S) as client:
                        self._ready[port] = (await client.get(url)).status_code == 200
                except httpx.HTTPError:
                    self._ready[port] = False
            await asyncio.sleep(LOOK_S)  # as balancers do

    async def send(self, body: dict[str, Any]) -> None:
        """One request, to its end."""
        for _ in range(2 * len(self._ready)):
            port = next(self._turn)
            if not self._ready[port] and any(self._ready.values()):
                continue
            try:
                answer = await self._clients[port].post("/v1/chat/completions", json=body)
            except httpx.ConnectError:
                continue
            except httpx.HTTPError as error:
                self.lost.append(f"{type(error).__name__}: {error}")
                return
            whole = "[DONE]" in answer.text if body["stream"] else "choices" in answer.text
            if answer.status_code != 200 or not whole:
                self.lost.append(f"{answer.status_code} {answer.text[:300]}")
            self.served[port] += 1
            return
        self.lost.append("refused by all")

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()


@asynccontextmanager
async def hammering(balancer: Balancer) -> AsyncIterator[None]:
    """Clients that never stop asking, until the end of the block; requests begun are ended."""
    over = asyncio.Event()

    async def client(number: int) -> None:
        stream = bool(number % 2)
        while not over.is_set():
            await balancer.send(CHAT | {"stream": stream})

    looking = asyncio.create_task(balancer.look())
    clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
    try:
        yield
    finally:
        over.set()
        await asyncio.gather(*clients)
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        await balancer.close()


async def served_more(balancer: Balancer, port: int, more: int) -> None:
    """The edge at `port` has answered so many more."""
    goal = balancer.served[port] + more

    async def reached() -> bool:
        return balancer.served[port] >= goal

    await until(reached, DEADLINE_S, "the load on it")


async def slowly(_request: Any, _context: Any) -> AsyncIterator[Any]:
    """An answer that takes long enough for an upgrade to begin in its middle."""
    for piece in ("He", "ll", "o"):
        yield text(piece)
        await asyncio.sleep(0.03)
    yield finish()


@pytest.mark.parametrize(("workers", "linger_s"), [(1, 0.5), (2, 0.5), (1, 0.0)])
async def test_no_request_is_lost(tmp_path: Path, workers: int, linger_s: float) -> None:
    """With no time to linger, too, as long as clients repeat what was refused."""
    peers = Peers(tmp_path)  # type: ignore[abstract]
    peers.generate = slowly
    ports = [free_port(), free_port()]

    def edge(port: int, life: int) -> Any:
        return edge_process(
            tmp_path / f"{port}-{life}", peers.scheduler_address, peers.engine_address,
            listen=f"127.0.0.1:{port}", workers=workers, linger_s=linger_s, drain_s=10.0,
            access_log=False,
        )  # fmt: skip

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(peers.scheduler())
        await stack.enter_async_context(peers.engine())
        old: list[EdgeProcess] = [await stack.enter_async_context(edge(it, 1)) for it in ports]
        balancer = Balancer(ports)
        async with hammering(balancer):
            for port, leaving in zip(ports, old, strict=True):
                await served_more(balancer, port, 30)
                leaving.terminate()
                assert await leaving.ended(DEADLINE_S) == 0
                await stack.enter_async_context(edge(port, 2))
                await served_more(balancer, port, 30)
        assert balancer.lost == []
        assert min(balancer.served.values()) >= 60
