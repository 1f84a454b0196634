"""The memory of an engine on the host: what it holds at rest, what requests add, and giving that
back once nothing runs.
"""

import asyncio
from collections.abc import Callable

import psutil

from services.matte.allocation import give_back

_IDLE_S = 1.0
"""Giving back costs the next request the touching of new pages: not between two of a row."""
_LOOK_EVERY_S = 0.25
_MIB = 1 << 20


class Rest:
    """What one process holds; `usage` is `hosting.usage.ReadUsage`."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._rest_mib: int | None = None
        """Held without any request; None: not loaded yet."""

    def usage(self) -> tuple[int, int]:
        """All that is held, and what of it requests have taken."""
        held_mib = self._held_mib()
        if self._rest_mib is None:
            return held_mib, 0
        return held_mib, max(0, held_mib - self._rest_mib)

    def loaded(self) -> None:
        """From now on more is what requests take. Blocks for milliseconds."""
        give_back()
        self._rest_mib = self._held_mib()

    async def watch(self, running: Callable[[], int]) -> None:
        """Give back what is free whenever nothing has run for a while. Never ends by itself."""
        loop = asyncio.get_running_loop()
        worked_at, owed = loop.time(), False
        while True:
            if running():
                worked_at, owed = loop.time(), True
            elif owed and loop.time() - worked_at >= _IDLE_S:
                await asyncio.to_thread(give_back)
                owed = False
            await asyncio.sleep(_LOOK_EVERY_S)

    def _held_mib(self) -> int:
        return int(self._process.memory_info().rss) // _MIB
