"""Through the edge: HTTP/1.1 by hand on one kept connection: no client library is measured."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bench.clock import StopWatch
from bench.figures import Shot
from bench.question import Question

_ANSWER_S = 60.0
_decode = msgspec.json.Decoder().decode


class ThroughEdge:
    """A way of asking."""

    name = "through the edge"

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, question: Question) -> Shot:
        """One answer. Raises RuntimeError when it is not a whole stream."""
        request = _request(question)
        watch, tokens = StopWatch(), 0
        self._writer.write(request)
        async with asyncio.timeout(_ANSWER_S):
            await self._headers()
            while piece := await self._chunk():
                for event in piece.split(b"\n\n"):
                    if event.startswith(b"data: {"):
                        tokens = _note(_decode(event[6:]), watch) or tokens
        return watch.shot(tokens)

    async def _headers(self) -> None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the edge answered {head.splitlines()[0].decode()}")

    async def _chunk(self) -> bytes:
        """A chunk of the body; empty at its end. The edge sends whole events in each."""
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]


def _note(event: dict[str, Any], watch: StopWatch) -> int:
    """Take an event in; answers the count of tokens where it is told."""
    if "error" in event:
        raise RuntimeError(f"the edge answered {event['error']['message']}")
    for choice in event["choices"]:
        if choice["delta"].get("content"):
            watch.text()
        if choice["finish_reason"]:
            watch.finish()
    usage = event.get("usage") or {"completion_tokens": 0}
    return int(usage["completion_tokens"])


def _request(question: Question) -> bytes:
    body = json.dumps(
        {
            "model": question.model,
            "messages": [{"role": "user", "content": question.text}],
            "max_tokens": question.tokens,
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def through_edge(port: int) -> AsyncIterator[ThroughEdge]:
    """A connection to the edge on this machine, until the end of the block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield ThroughEdge(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
