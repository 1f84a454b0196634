"""From the pipes of the services to the screen: bounded lines, one prefix a service.

`Splitter` is pure. `Screen` writes on a thread of its own, so that a terminal that is held
(Ctrl-S, a pager) stops neither the services nor their supervision: its queue is bounded, and what
does not fit is counted and said.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator

from cli.console import printable

MAX_LINE_BYTES = 64 * 1024
_QUEUED_LINES = 10_000
_READ_BYTES = 64 * 1024
_COLOURS = (36, 33, 35, 32, 34, 31)  # cyan first; red last, it looks like an error


class Splitter:
    """Cuts a byte stream into lines; a longer one comes in pieces of `limit` bytes."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that `data` completes, without their newlines."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            yield from self._pieces(line)
        while len(self._rest) >= self._limit:
            yield self._rest[: self._limit]
            self._rest = self._rest[self._limit :]

    def end(self) -> Iterator[bytes]:
        """What was left without a newline."""
        if self._rest:
            yield self._rest
            self._rest = b""

    def _pieces(self, line: bytes) -> Iterator[bytes]:
        for start in range(0, max(1, len(line)), self._limit):
            yield line[start : start + self._limit]


class Screen:
    """Writes prefixed lines to `fd`, coloured only if it is a terminal, and pages to `page_fd`."""

    def __init__(
        self, fd: int, names: list[str], page_fd: int | None = None, capacity: int = _QUEUED_LINES
    ) -> None:
        self._fd = fd
        self._page_fd = fd if page_fd is None else page_fd
        self._queue: queue.Queue[tuple[int, bytes] | None] = queue.Queue(capacity)
        self._dropped = 0
        self._prefixes = _prefixes(names, colour=os.isatty(fd))
        self._thread = threading.Thread(target=self._write_all, name="screen", daemon=True)
        self._thread.start()

    def line(self, name: str, text: str) -> None:
        """Show one line of `name`; never waits."""
        line = f"{self._prefixes[name]} {printable(text)}\n".encode()
        if self._dropped:
            said = f"{self._prefixes[name]} ({self._dropped} lines were not shown)\n".encode()
            line = said + line
        if self._put(self._fd, line):
            self._dropped = 0
        else:
            self._dropped += 1

    def page(self, text: str) -> None:
        """Show `text` as it is, on the descriptor for pages; never waits."""
        self._put(self._page_fd, f"{text}\n".encode())

    def _put(self, fd: int, data: bytes) -> bool:
        try:
            self._queue.put_nowait((fd, data))
        except queue.Full:
            return False
        return True

    def close(self, timeout_s: float = 1.0) -> None:
        """Show what is queued, for at most `timeout_s`."""
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            fd, line = item
            try:
                while line:
                    line = line[os.write(fd, line) :]
            except OSError:  # nobody reads any more; the services go on
                continue


def _prefixes(names: list[str], *, colour: bool) -> dict[str, str]:
    width = max(len(name) for name in names)
    plain = {name: f"{name:<{width}} |" for name in names}
    if not colour:
        return plain
    colours = [_COLOURS[i % len(_COLOURS)] for i in range(len(names))]
    return {
        name: f"\033[{number}m{text}\033[0m"
        for (name, text), number in zip(plain.items(), colours, strict=True)
    }


async def pump(reader: asyncio.StreamReader, show: Callable[[str], None]) -> None:
    """Give every line of `reader` to `show`, until its other end is closed."""
    splitter = Splitter()
    while data := await reader.read(_READ_BYTES):
        for line in splitter.feed(data):
            show(line.decode(errors="replace"))
    for line in splitter.end():
        show(line.decode(errors="replace"))
