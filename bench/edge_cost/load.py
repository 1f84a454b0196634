"""Clients that ask one request after the other, HTTP/1.1 by hand: no client library takes part."""

import asyncio
import time
from contextlib import closing
from dataclasses import dataclass

from bench.edge_cost.asks import WORDS, Ask

_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Ran:
    """A burst of requests."""

    wall_s: float
    each_ms: tuple[float, ...]
    """Of every request, from its first byte to the last one of its answer."""


async def burst(port: int, ask: Ask, count: int) -> Ran:
    """`count` requests by its clients, each on its own connection. Raises RuntimeError."""
    left, took = iter(range(count)), list[float]()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(writer):
            for _ in left:
                began_s = time.perf_counter()
                writer.write(ask.request)
                async with asyncio.timeout(_ANSWER_S):
                    body = await _answer(reader)
                _check(body)
                took.append(1000 * (time.perf_counter() - began_s))

    began_s = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(ask.clients):
                group.create_task(client())
    except* (RuntimeError, EOFError, OSError, ValueError) as failed:
        raise RuntimeError(f"a client failed: {failed.exceptions[0]!r}") from failed
    return Ran(time.perf_counter() - began_s, tuple(took))


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200 "):
        raise RuntimeError(f"it answered {head.decode()} {(await reader.read(2000)).decode()}")
    if b"\r\ncontent-length: " in head:
        length = head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        return await reader.readexactly(int(length))
    parts = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(parts)


def _check(body: bytes) -> None:
    """Whether all of the answer is there, however its words are cut."""
    if not all(word.strip().encode() in body for word in (WORDS[0], WORDS[-1])):
        raise RuntimeError(f"not the answer of the null model: {body[:500]!r}")
