"""Callers who ask, run and ask again, and the count of what they hold at once. No wire here.

The count is the callers' own: it is not the scheduler that says its budget is kept.
"""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.scheduler.script import MODELS
from services.scheduler.core.values import Tier

_MODELS = tuple(MODELS)
_TIERS = tuple(Tier)
DEADLINE_S = 300.0


class Door(Protocol):
    """A way of being admitted."""

    def admitted(self, tier: Tier, model: str, key: str) -> AbstractAsyncContextManager[None]:
        """Waits until admitted; the block is the run, and its end gives the permit back."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """So many callers, so many times each."""

    callers: int
    rounds: int
    slots: int
    """Permits of the device."""
    tiers: tuple[Tier, ...] = _TIERS
    """Dealt out to the callers in turn."""

    @property
    def admissions(self) -> int:
        """All of them together."""
        return self.callers * self.rounds


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of it."""

    admissions: int
    seconds: float
    cpu_s: float
    """Of this process."""
    most_held: int
    """Permits that callers held at once."""

    @property
    def per_s(self) -> float:
        """Admissions a second."""
        return self.admissions / self.seconds


@dataclass(slots=True)
class _Held:
    """Permits in the callers' hands."""

    now: int = 0
    most: int = 0
    runs: int = 0

    def take(self, cost: int) -> None:
        self.now += cost
        self.most = max(self.most, self.now)
        self.runs += 1


async def attend(crowd: Crowd, door: Door) -> Finished:
    """Let them all in. Raises RuntimeError when the budget was exceeded or somebody had no turn,
    TimeoutError when it does not end."""
    held = _Held()
    began_s, cpu_s = time.perf_counter(), time.process_time()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for number in range(crowd.callers):
            group.create_task(_call(crowd, door, held, number))
    finished = Finished(
        held.runs, time.perf_counter() - began_s, time.process_time() - cpu_s, held.most
    )
    if held.most > crowd.slots or held.runs != crowd.admissions:
        raise RuntimeError(
            f"{held.most} of {crowd.slots} permits were held at once in "
            f"{held.runs} of {crowd.admissions} runs"
        )
    return finished


async def _call(crowd: Crowd, door: Door, held: _Held, number: int) -> None:
    tier, key = crowd.tiers[number % len(crowd.tiers)], f"key-{number % 16}"
    for turn in range(crowd.rounds):
        model = _MODELS[(number // len(crowd.tiers) + turn) % len(_MODELS)]
        cost = MODELS[model]
        async with door.admitted(tier, model, key):
            held.take(cost)
            await asyncio.sleep(0)  # others run meanwhile
            held.now -= cost
