"""The memory of an edge stays flat over many requests of every kind.

Some thousand in a plain run, 20,000 with COHABIT_DEEP=1. Its stores are made small, so that they
are full before the first look; what is left is what a request leaves behind.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.edge_kit import CHAT, Peers
from tests.edge_process import EdgeProcess, edge_process
from tests.keys_kit import secret_of, write_keys

DEEP = bool(os.environ.get("COHABIT_DEEP"))
WARM_UP, COUNT = (3_000, 20_000) if DEEP else (600, 1_800)
CLIENTS = 8
MOST_PERCENT = 2.0 if DEEP else 4.0
MIB = 1024 * 1024
CHAT_PATH = "/v1/chat/completions"
KEY = secret_of("alice")
LEAVES = CHAT | {"stream": True, "messages": [{"role": "user", "content": "hang"}]}


class Forgetful(Peers):
    """Peers that remember nothing, so that all that grows is the edge."""

    async def note(self, what: str) -> None:
        for seen in (self.admits, self.generates, self.metadata):
            seen.clear()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.generate = self.answers

    async def answers(self, request: Any, context: Any) -> AsyncIterator[Any]:
        said = request.conversation.messages[-1].content[0].text
        script = self.says_and_hangs if said == "hang" else self.says_hello
        async for message in script(request, context):
            yield message


class Load:
    """One request after the other, of all kinds in turn."""

    def __init__(self, edge: EdgeProcess) -> None:
        self._edge = edge
        self._number = 0
        self.statuses: Counter[int] = Counter()

    async def ask(self, count: int) -> None:
        """So many, by all clients together."""
        left = iter(range(count))

        async def client() -> None:
            async with self._edge.client(headers={"authorization": f"Bearer {KEY}"}) as http:
                for _ in left:
                    self._number += 1
                    await self._one(http, self._number)

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())

    async def _one(self, http: httpx.AsyncClient, number: int) -> None:
        chat, responses = CHAT_PATH, "/v1/responses"
        kept = {"model": CHAT["model"], "input": f"Number {number}"}
        match number % 8:
            case 0 | 1:
                answer = await http.post(chat, json=CHAT)
            case 2 | 3:
                answer = await http.post(chat, json=CHAT | {"stream": True})
            case 4:
                answer = await http.post(responses, json=kept)
            case 5:  # every one of them of another shape
                answer = await http.post(chat, json=CHAT | {"temperature": f"x{number}"})
            case 6:
                wrong = {"authorization": f"Bearer sk-{number}"}
                answer = await http.post(f"/{number}/of/no/route", headers=wrong)
            case _:
                await self._leave(number)
                return
        self.statuses[answer.status_code] += 1

    async def _leave(self, number: int) -> None:
        """In the middle of a stream, on a connection of its own."""
        reader, writer = await asyncio.open_connection(*self._edge.host_port)
        body = json.dumps(LEAVES | {"user": f"u{number}"}).encode()
        head = (
            f"POST {CHAT_PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await reader.readuntil(b"Hel")
        writer.transport.abort()


def resident_mib(edge: EdgeProcess) -> float:
    """Of all its processes."""
    first = psutil.Process(edge.process.pid)
    return sum(it.memory_info().rss for it in (first, *first.children())) / MIB


@pytest.mark.timeout(3600 if DEEP else 240)
@pytest.mark.parametrize("workers", [1, 2])
async def test_memory_is_flat(tmp_path: Path, workers: int) -> None:
    keys = write_keys(tmp_path / "keys.yaml", alice={"concurrent": 100})
    peers = Forgetful(tmp_path)  # type: ignore[abstract]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(peers.scheduler())
        await stack.enter_async_context(peers.engine())
        edge = await stack.enter_async_context(
            edge_process(
                tmp_path / "edge", peers.scheduler_address, peers.engine_address,
                workers=workers, stored_responses=32, access_log=False, keys_file=str(keys),
            )
        )  # fmt: skip
        load = Load(edge)
        await load.ask(WARM_UP)
        before_mib = resident_mib(edge)
        load.statuses.clear()
        await load.ask(COUNT)
        after_mib = resident_mib(edge)
    print(f"{workers}: {before_mib:.1f} MiB, after {COUNT} more {after_mib:.1f}")  # noqa: T201
    eighth = COUNT // 8
    assert load.statuses == {200: 5 * eighth, 400: eighth, 401: eighth}
    assert after_mib <= before_mib * (1 + MOST_PERCENT / 100)
