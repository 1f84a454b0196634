"""Requests as bytes, so that they may be wrong in any way, and what comes back."""

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any

DEADLINE_S = 20.0
_QUIET_S = 1.0
"""A connection on which nothing has come for this long is told that nothing more will be sent."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[^\r]*\r\n(.*?)\r\n\r\n", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """One answer of possibly several."""

    status: int
    head: bytes
    body: bytes

    @property
    def error(self) -> Any:
        """What it says is wrong, in any dialect."""
        return json.loads(self.body)["error"]


def request(
    method: str,
    target: str,
    *lines: str | bytes,
    body: bytes = b"",
    version: str = "HTTP/1.1",
    host: str | None = "127.0.0.1",
    keep: bool = False,
) -> bytes:
    """A request with these lines of headers; closing its connection unless it is to be kept."""
    head: list[str | bytes] = [f"{method} {target} {version}"]
    head += [f"Host: {host}"] if host is not None else []
    head += [] if keep else ["Connection: close"]
    head += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
    raw = [line if isinstance(line, bytes) else line.encode("latin-1") for line in (*head, *lines)]
    return b"\r\n".join(raw) + b"\r\n\r\n" + body


async def exchange(port: int, sent: bytes, host: str = "127.0.0.1") -> list[Answer]:
    """Send, and read until the other side closes."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(sent)
        async with asyncio.timeout(DEADLINE_S):
            came = await _all_of(reader, writer)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return answers(came)


async def _all_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    came, told = b"", False
    while True:
        try:
            async with asyncio.timeout(None if told else _QUIET_S):
                more = await reader.read(65_536)
        except TimeoutError:
            writer.write_eof()
            told = True
            continue
        except ConnectionError:
            return came
        if not more:
            return came
        came += more


def answers(came: bytes) -> list[Answer]:
    """What stands in the bytes of a connection."""
    heads = list(_STATUS.finditer(came))
    ends = [*(head.start() for head in heads), len(came)][1:]
    return [
        Answer(int(head[1]), head[2], came[head.end() : end])
        for head, end in zip(heads, ends, strict=True)
    ]
