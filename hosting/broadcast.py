"""One publisher, many watchers, each with a bounded queue of its own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Fallen(Exception):
    """This watcher let too much pile up, or the publisher is closing: watch anew."""


class Subscription(Generic[T]):
    """What one watcher has yet to read."""

    def __init__(self, most: int) -> None:
        self._queue: asyncio.Queue[T | None] = asyncio.Queue(most)
        self._fallen = False

    def offer(self, item: T) -> None:
        """Add an item, or mark the watcher as fallen behind."""
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            self._fallen = True

    def fall(self) -> None:
        """Let the watcher read no more, and wake it if it waits."""
        self._fallen = True
        if self._queue.empty():
            self._queue.put_nowait(None)

    async def next(self, timeout_s: float) -> T | None:
        """The next item; None when nothing came within `timeout_s`. Raises Fallen."""
        if self._fallen:
            raise Fallen
        try:
            async with asyncio.timeout(timeout_s):
                item = await self._queue.get()
        except TimeoutError:
            return None
        if item is None:
            raise Fallen
        return item


class Broadcast(Generic[T]):
    """Publishes to every present subscription, never waiting for any."""

    def __init__(self, most_queued: int = 4096) -> None:
        self._most = most_queued
        self._watchers: set[Subscription[T]] = set()
        self._closed = False

    @contextmanager
    def subscribe(self) -> Iterator[Subscription[T]]:
        """Receive what is published from now until the end of the block."""
        watcher: Subscription[T] = Subscription(self._most)
        if self._closed:
            watcher.fall()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """Let every watcher go, and those to come at once."""
        self._closed = True
        for watcher in self._watchers:
            watcher.fall()

    def publish(self, item: T) -> None:
        """Hand `item` to everyone who watches."""
        for watcher in self._watchers:
            watcher.offer(item)
