"""Doors that know less than the scheduler: one asyncio.Condition for everybody."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.scheduler.script import MODELS
from services.scheduler.core.values import Tier


class ConditionDoor:
    """Whoever gives back wakes everybody, and each looks whether it is at the front.

    It keeps the order of tiers and arrivals, and lets nobody pass a front that lacks permits: the
    same promises as the scheduler's, without models, keys, deadlines and engines.
    """

    def __init__(self, slots: int) -> None:
        self._condition = asyncio.Condition()
        self._waiting: list[tuple[int, int]] = []
        self._free, self._number = slots, 0

    @asynccontextmanager
    async def admitted(self, tier: Tier, model: str, key: str) -> AsyncIterator[None]:
        """See `Door`."""
        del key
        cost = MODELS[model]
        async with self._condition:
            self._number += 1
            mine = (-tier, self._number)
            heapq.heappush(self._waiting, mine)
            await self._condition.wait_for(lambda: self._waiting[0] == mine and self._free >= cost)
            heapq.heappop(self._waiting)
            self._free -= cost
            self._condition.notify_all()  # the next may fit beside it
        try:
            yield
        finally:
            async with self._condition:
                self._free += cost
                self._condition.notify_all()
