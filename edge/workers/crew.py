"""All workers of an edge: started, started again when they end, given connections, ended."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from chassis import log, restarts
from edge.standing import Standing
from edge.workers.calls import CLOSED, FINISH, READY, STANDING, Told
from edge.workers.child import Worker
from edge.workers.choosing import Loads
from edge.workers.handover import give
from edge.workers.link import Bound, Link


class Room(Protocol):
    """Something that the parent keeps for all workers."""

    def methods(self, slot: int) -> Sequence[Bound]:
        """What the worker `slot` may call."""

    def gone(self, slot: int) -> None:
        """A worker has ended: what it held is given back."""


_NOT_STARTED = 1
Start = Callable[[int, Link], Awaitable[Worker]]


class Crew:
    """Keeps `size` workers running. `rooms` may call them by `links`, which it keeps by slot."""

    def __init__(
        self,
        size: int,
        start: Start,
        rooms: Sequence[Room],
        links: dict[int, Link],
        most_bytes: int,
    ) -> None:
        self._start, self._rooms, self._most_bytes = start, rooms, most_bytes
        self.links = links
        self.gave_up = asyncio.Event()
        """A worker cannot use its configuration, and none ran with it."""
        self._standing = Standing(workers=size, up=0)
        self._loads = Loads()
        self._workers: dict[int, Worker] = {}
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start them."""
        loop = asyncio.get_running_loop()
        slots = range(self._standing.workers)
        self._tasks = [loop.create_task(self._supervise(slot)) for slot in slots]

    def take(self, connection: socket.socket) -> bool:
        """Give a connection to a worker; as `edge.listening.Take`."""
        for slot in self._loads.order():
            if give(self._workers[slot].way, connection):
                self._loads.handed(slot)
                return True
        return False

    def drain(self) -> None:
        """Have all of them say that they are about to stop."""
        self._standing.draining = True
        self._tell()

    async def finish(self, within_s: float) -> None:
        """No connection comes any more: let them end, and kill whoever has not in time."""
        self._stopping.set()
        for link in self.links.values():
            link.tell(FINISH, None)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        for worker in self._workers.values():
            worker.process.kill()
        for task in self._tasks:
            await task

    async def _supervise(self, slot: int) -> None:
        loop, failures, again = asyncio.get_running_loop(), 0, False
        while not self._stopping.is_set():
            began = loop.time()
            try:
                code = await self._run_once(slot)
            except OSError as error:  # the machine has no process or descriptor left
                log.get().error("a worker cannot be started", worker=slot, error=error.strerror)
                code = _NOT_STARTED
            if self._stopping.is_set():
                return
            decision = restarts.decide(code, loop.time() - began, failures, again=again)
            if isinstance(decision, restarts.GiveUp):
                self.gave_up.set()
                return
            failures, again = decision.failures, True
            how, delay_s = restarts.ending(code), decision.delay_s
            log.get().error("a worker ended", worker=slot, how=how, again_in_s=delay_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)

    async def _run_once(self, slot: int) -> int:
        bounds = [bound for room in self._rooms for bound in room.methods(slot)]
        link = Link(self._most_bytes, [*bounds, *self._own(slot)])
        worker = self._workers[slot] = await self._start(slot, link)
        self.links[slot] = link
        if self._stopping.is_set():  # the wish came while it was being started
            link.tell(FINISH, None)
        try:
            return await worker.ended()
        finally:
            del self._workers[slot], self.links[slot]
            self._loads.leave(slot)
            worker.close()
            for room in self._rooms:
                room.gone(slot)
            self._tell()

    def _own(self, slot: int) -> Sequence[Bound]:
        def ready(_: None) -> None:
            self._loads.join(slot)
            self._tell()

        def closed(in_all: int) -> None:
            self._loads.closed(slot, in_all)

        return Bound(READY, ready), Bound(CLOSED, closed)

    def _tell(self) -> None:
        self._standing.up = len(self._loads.slots)
        it = self._standing
        for link in self.links.values():
            link.tell(STANDING, Told(it.draining, it.workers, it.up))
