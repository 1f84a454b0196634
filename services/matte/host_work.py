"""What the service does itself, without a model: a few at once, on threads, and no queue.

Its memory is leased by nobody, so it is bounded twice: by how many run, and by their pixels.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

from chassis.errors import Fault, Reason
from imaging.values import Bounds
from services.matte.threads import on_thread
from services.matte.values import Composed, Composition, Estimated, Estimation, Times

R = TypeVar("R")

_RETRY_S = 1.0


class HostWork:
    """At most `places` at once."""

    def __init__(self, places: int, bounds: Bounds) -> None:
        self._bounds, self._places, self._running = bounds, places, 0
        self._threads = ThreadPoolExecutor(places, "host")

    async def estimate(self, asked: Estimation) -> tuple[Estimated, Times]:
        """Solve for both colours. Raises Fault SATURATED, and as `picturing`."""
        return await self._run(lambda times: _estimate(asked, self._bounds, times))

    async def compose(self, asked: Composition) -> tuple[Composed, Times]:
        """Put a cutout on a backdrop. Raises Fault as `estimate`."""
        return await self._run(lambda times: _compose(asked, self._bounds, times))

    async def _run(self, work: Callable[[Times], R]) -> tuple[R, Times]:
        if self._running >= self._places:
            raise Fault(
                Reason.SATURATED,
                f"The matting service already runs {self._running} requests without a model, the "
                "most it takes; try again shortly.",
                retry_after_s=_RETRY_S,
            )
        self._running += 1
        began, times = time.perf_counter(), Times()
        try:
            done = await on_thread(self._threads, lambda: work(times))
        finally:
            self._running -= 1
        times.total_ms = 1000 * (time.perf_counter() - began)
        return done, times

    def close(self) -> None:
        """Take nothing any more; what runs on threads ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _estimate(asked: Estimation, bounds: Bounds, times: Times) -> Estimated:
    from services.matte import picturing  # noqa: PLC0415 - its solver is compiled when first used

    marks = [time.perf_counter()]
    picture, alpha = picturing.opened_with_matte(asked, bounds)
    marks.append(time.perf_counter())
    colors = picturing.solved(picture.rgb, alpha)
    marks.append(time.perf_counter())
    done = picturing.estimated(asked, alpha, colors)
    marks.append(time.perf_counter())
    times.decode_ms, times.solve_ms, times.encode_ms = _between(marks)
    return done


def _compose(asked: Composition, bounds: Bounds, times: Times) -> Composed:
    from services.matte import picturing  # noqa: PLC0415

    began = time.perf_counter()
    opened = picturing.opened_for_composition(asked, bounds)
    decoded = time.perf_counter()
    done = picturing.composed(asked, opened)
    times.decode_ms, times.encode_ms = _between([began, decoded, time.perf_counter()])
    return done


def _between(marks: list[float]) -> list[float]:
    return [1000 * (end - begin) for begin, end in pairwise(marks)]
