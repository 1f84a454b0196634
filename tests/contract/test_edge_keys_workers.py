"""Limits of a key hold over all workers of an edge, as processes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from tests.edge_kit import CHAT, Peers
from tests.edge_process import edge_process
from tests.integration.house import until
from tests.keys_kit import bearing, write_keys

CHATS = "/v1/chat/completions"


@asynccontextmanager
async def two_workers(folder: Path) -> AsyncIterator[tuple[Peers, list[httpx.AsyncClient]]]:
    """And a client with a connection to each."""
    peers = Peers(folder)  # type: ignore[abstract]  # what is not asked for is not scripted
    keys = write_keys(folder / "keys.yaml", often={"requests_per_minute": 3}, one={"concurrent": 1})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(peers.scheduler())
        await stack.enter_async_context(peers.engine())
        addresses = (peers.scheduler_address, peers.engine_address)
        edge = await stack.enter_async_context(
            edge_process(folder / "edge", *addresses, workers=2, keys_file=str(keys))
        )
        clients = [await stack.enter_async_context(edge.client()) for _ in range(2)]
        for client in clients:
            assert (await client.get("/health")).status_code == 200
        yield peers, clients


async def test_a_minute_is_counted_over_all(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (peers, clients):
        statuses = [
            (await clients[turn % 2].post(CHATS, json=CHAT, headers=bearing("often"))).status_code
            for turn in range(6)
        ]
        assert statuses == [200, 200, 200, 429, 429, 429]
        assert len(peers.admits) == 3


async def test_a_request_in_progress_is_seen_by_all(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (peers, (first, second)):
        peers.generate = peers.says_and_hangs
        headers = bearing("one")
        asked = CHAT | {"stream": True}
        async with first.stream("POST", CHATS, json=asked, headers=headers) as answer:
            assert answer.status_code == 200
            assert (await second.post(CHATS, json=CHAT, headers=headers)).status_code == 429
        peers.generate = peers.says_hello

        async def served() -> bool:
            return (await second.post(CHATS, json=CHAT, headers=headers)).status_code == 200

        await until(served)


async def test_each_worker_follows_the_file(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (_, clients):
        write_keys(tmp_path / "keys.yaml", often={})
        for client in clients:

            async def refused(client: httpx.AsyncClient = client) -> bool:
                return (await client.get("/v1/models", headers=bearing("one"))).status_code == 401

            await until(refused)
