"""Real cards, read through NVIDIA's management library.

A driver that does not answer is not a full card: readings then say unreachable and when it will be
asked again. A call into the driver may hang for good, so each runs on a daemon thread under a
deadline, one at a time, and the process can still end.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import pynvml

from chassis import log
from chassis.backoff import Backoff
from services.broker.device import DeviceKind, DeviceReading

_BYTES_PER_MIB = 1 << 20
_RETRY = Backoff(first_s=1.0, factor=2.0, most_s=30.0)

T = TypeVar("T")


class Caller(Generic[T]):
    """Runs one blocking function off the event loop, never two calls at once."""

    def __init__(self, function: Callable[[], T], deadline_s: float) -> None:
        self._function, self._deadline_s = function, deadline_s
        self._running: asyncio.Future[T] | None = None

    async def call(self) -> T:
        """What the function answers. Raises what it raises, and TimeoutError.

        While an earlier call hangs, no other is started. An answer that came too late is dropped:
        it tells of a moment long gone.
        """
        if self._running is not None and not self._running.done():
            raise TimeoutError("the previous call has not come back")
        self._running = _on_thread(self._function)
        async with asyncio.timeout(self._deadline_s):
            return await asyncio.shield(self._running)


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


async def card_count(deadline_s: float) -> int:
    """How many cards the driver answers with; 0 without a driver."""

    def count() -> int:
        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()

    try:
        return await Caller(count, deadline_s).call()
    except (pynvml.NVMLError, TimeoutError) as error:
        log.get().info("no nvidia driver", error=str(error))
        return 0


class NvmlDevice:
    """Card number `index`."""

    kind = DeviceKind.NVML

    def __init__(self, index: int, deadline_s: float) -> None:
        self.name = f"gpu{index}"
        self.description = "NVIDIA card"
        self._index, self._open, self._handle = index, False, None
        self._caller = Caller(self._query, deadline_s)
        self._failures = 0
        self._last = DeviceReading(0, 0, reachable=False)

    async def read(self, now_ms: int) -> DeviceReading:
        """Total and free memory by the driver; after a failure the last ones, until it is time."""
        if now_ms < self._last.retry_at_unix_ms:
            return self._last
        try:
            total_mib, free_mib = await self._caller.call()
        except (pynvml.NVMLError, TimeoutError) as error:
            self._failed(now_ms, error)
        else:
            self._failures = 0
            self._last = DeviceReading(total_mib, free_mib)
        return self._last

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
        try:
            if not self._open:
                pynvml.nvmlInit()
                self._open = True
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(self._index)
                self.description = str(pynvml.nvmlDeviceGetName(self._handle))
            memory = pynvml.nvmlDeviceGetMemoryInfo(self._handle)
        except pynvml.NVMLError:
            self._close()
            raise
        return memory.total // _BYTES_PER_MIB, memory.free // _BYTES_PER_MIB

    def _close(self) -> None:
        # The library counts who has it open; closing what we did not open would take it from
        # the other cards.
        if self._open:
            self._open, self._handle = False, None
            with suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()
