"""Calls taken one at a time, in order, by one task: the mutual exclusion of the shell.

A caller that goes away while its call waits is skipped. One that goes away later cannot stop what
has begun (half a journal line helps nobody): the call ends, and `undo` takes its outcome back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from chassis import log
from chassis.errors import Fault, Reason

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Turn:
    work: Callable[[], Awaitable[Any]]
    answer: "asyncio.Future[Any]"
    undo: Callable[[Any], Awaitable[Any]] | None


class Turns:
    """At most `max_waiting` calls wait; further ones are refused as saturated."""

    def __init__(self, max_waiting: int) -> None:
        self._waiting: asyncio.Queue[_Turn | None] = asyncio.Queue(max_waiting)
        self._owner: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take calls."""
        self._owner = asyncio.create_task(self._run(), name="broker-turns")

    async def close(self, within_s: float) -> None:
        """Take the calls that wait already, then end. Raises TimeoutError."""
        if self._owner is not None:
            async with asyncio.timeout(within_s):
                await self._waiting.put(None)
                await self._owner

    async def take(
        self,
        work: Callable[[], Awaitable[T]],
        undo: Callable[[T], Awaitable[Any]] | None = None,
    ) -> T:
        """What `work` answers or raises once it is its turn. Faults: saturated."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            self._waiting.put_nowait(_Turn(work, answer, undo))
        except asyncio.QueueFull:
            raise Fault(
                Reason.SATURATED,
                f"{self._waiting.maxsize} calls already wait for the broker; try again shortly.",
                retry_after_s=1.0,
            ) from None
        return await answer

    async def _run(self) -> None:
        while (turn := await self._waiting.get()) is not None:
            if not turn.answer.cancelled():
                await _play(turn)


async def _play(turn: _Turn) -> None:
    try:
        outcome = await turn.work()
        if turn.answer.cancelled() and turn.undo is not None:
            await turn.undo(outcome)
    except Exception as error:
        if not turn.answer.done():
            turn.answer.set_exception(error)
        elif not isinstance(error, Fault):
            log.get().error("bug", exc_info=error)
    else:
        if not turn.answer.done():
            turn.answer.set_result(outcome)
