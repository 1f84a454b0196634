"""SIGKILL at random moments: one service, two at once, or one more while another comes back."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import psutil

from tests.integration.chaos_house import SERVICES, ChaosHouse

_PAUSE_S = (0.3, 1.5)
_MOST_LATER_S = 0.9
"""A service is back within this time, at first: the launcher waits longer with every kill."""
_RESPITE_REQUESTS, _MOST_RESPITE_S = 8, 8.0
_RELENTLESS = 0.25
"""How often no respite is given."""


class Killer:
    """Kills by dice; `killed` says how often whom.

    Between two strikes the house mostly has the time to serve a few requests, as counted by
    `served`: who is killed all the time is killed at nothing.
    """

    def __init__(self, house: ChaosHouse, dice: random.Random, served: Callable[[], int]) -> None:
        self._house = house
        self._dice = dice
        self._served = served
        self.killed: Counter[str] = Counter()
        self.away = 0
        """How often the victim was not there, because it was being started again."""

    async def rage(self, for_s: float) -> None:
        """Kill for so many seconds; everybody at least once."""
        end = time.monotonic() + for_s
        while time.monotonic() < end or self.killed.keys() != set(SERVICES):
            if self._dice.random() > _RELENTLESS:
                await self._respite()
            await asyncio.sleep(self._dice.uniform(*_PAUSE_S))
            await self._strike()

    async def _respite(self) -> None:
        end = time.monotonic() + _MOST_RESPITE_S
        enough = self._served() + _RESPITE_REQUESTS
        while self._served() < enough and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # a poll, bounded above

    async def _strike(self) -> None:
        first, second = self._dice.sample(SERVICES, 2)
        way = self._dice.random()
        self._kill(first)
        if way < 0.25:
            self._kill(second)
        elif way < 0.5:
            await asyncio.sleep(self._dice.uniform(0, _MOST_LATER_S))
            self._kill(second)
        elif way < 0.6:
            await asyncio.sleep(self._dice.uniform(0, _MOST_LATER_S))
            self._kill(first)  # perhaps in the middle of its start

    def _kill(self, module: str) -> None:
        try:
            self._house.process(module).kill()
        except (LookupError, psutil.NoSuchProcess):
            self.away += 1
        else:
            self.killed[module] += 1
