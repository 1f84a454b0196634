"""Real cards, read through NVIDIA's management library.

A driver that does not answer is not a full card: readings then say unreachable and when it will be
asked again. A call into the driver may hang for good, so each runs on a daemon thread under a
deadline, one at a time, and the process can still end.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import pynvml

from chassis import log
from chassis.backoff import Backoff
from services.broker import driver_nvml
from services.broker.device import DeviceKind, DeviceReading, ProcessUse
from services.broker.driver_nvml import Card, OpenCard

_RETRY = Backoff(first_s=1.0, factor=2.0, most_s=30.0)

T = TypeVar("T")


class Caller:
    """Runs blocking functions off the event loop, never two at once."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._running: asyncio.Future[Any] | None = None

    async def call(self, function: Callable[[], T]) -> T:
        """What the function answers. Raises what it raises, and TimeoutError.

        While an earlier call hangs, no other is started. An answer that came too late is dropped:
        it tells of a moment long gone.
        """
        if self._running is not None and not self._running.done():
            raise TimeoutError("the previous call has not come back")
        running = self._running = _on_thread(function)
        async with asyncio.timeout(self._deadline_s):
            return await asyncio.shield(running)


def _on_thread(function: Callable[[], T]) -> "asyncio.Future[T]":
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    # Asked for here, so that an answer nobody waits for any more is not reported as forgotten.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def work() -> None:
        settle: Callable[[Any], None]
        outcome: Any
        try:
            settle, outcome = future.set_result, function()
        except Exception as error:
            settle, outcome = future.set_exception, error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name="nvml", daemon=True).start()
    return future


async def cards(deadline_s: float) -> list[Card]:
    """The cards that can be lent from; none without a driver."""
    try:
        return await Caller(deadline_s).call(driver_nvml.cards)
    except (pynvml.NVMLError, TimeoutError) as error:
        log.get().info("no nvidia driver", error=str(error))
        return []


class NvmlDevice:
    """One card, or one instance of a card in MIG mode."""

    kind = DeviceKind.NVML

    def __init__(self, card: Card, deadline_s: float) -> None:
        self.name = card.name
        self.description = "NVIDIA card"
        self._card = card
        self._open: OpenCard | None = None
        self._caller = Caller(deadline_s)
        self._failures = 0
        self._last = DeviceReading(0, 0, reachable=False)

    async def read(self, now_ms: int, promised_mib: int) -> DeviceReading:  # noqa: ARG002
        """Total and free memory by the driver; after a failure the last ones, until it is time."""
        if now_ms < self._last.retry_at_unix_ms:
            return self._last
        try:
            total_mib, free_mib = await self._caller.call(self._query)
        except (pynvml.NVMLError, TimeoutError) as error:
            self._failed(now_ms, error)
        else:
            self._failures = 0
            self._last = DeviceReading(total_mib, free_mib)
        return self._last

    async def processes(self) -> tuple[ProcessUse, ...]:
        """Who uses the card by the driver; nobody while it does not answer."""
        card = self._open
        if card is None or not self._last.reachable:
            return ()
        try:
            return await self._caller.call(card.processes)
        except (pynvml.NVMLError, TimeoutError):  # the next reading will say so
            return ()

    def _failed(self, now_ms: int, error: Exception) -> None:
        self._failures += 1
        delay_ms = round(_RETRY.delay_s(self._failures) * 1000)
        self._last = DeviceReading(
            self._last.total_mib, self._last.free_mib, False, now_ms + delay_ms
        )
        log.get().warning(
            "device unreachable", device=self.name, error=str(error), retry_ms=delay_ms
        )

    def _query(self) -> tuple[int, int]:
        """Ask the driver. Runs on the thread; after a failure the library is opened afresh."""
        if self._open is None:
            self._open = OpenCard(self._card)
            self.description = self._open.description() or self.description
        try:
            return self._open.memory_mib()
        except pynvml.NVMLError:
            card, self._open = self._open, None
            card.close()
            raise
