"""Work on threads that may be cancelled: what has not begun is dropped, what has begun is awaited.

Native code cannot be stopped, and whoever is told that a request is over must be able to rely on
it: so a cancel surfaces when the thread is free again, and nothing of the request goes on.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

R = TypeVar("R")


async def on_thread(pool: Executor, work: Callable[[], R]) -> R:
    """What `work` answers or raises. Cancelled: as soon as it is not running."""
    begun = pool.submit(work)
    waiting = asyncio.wrap_future(begun)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not begun.cancel():
            await _over(waiting)
        raise


async def _over(waiting: "asyncio.Future[R]") -> None:
    """Returns when it is done, however often that is cancelled."""
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError:
            continue
    if not waiting.cancelled():
        waiting.exception()  # nobody is left to be told
