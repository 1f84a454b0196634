"""Who asks for what: the same script for the scheduler's core and for its rivals. Pure.

Under more load than the device can serve, strict tiers leave a crowd of the lower ones waiting: of
those who wait three in four are free and one is background. Newcomers are paid, sub and free in
equal parts, so paid and sub are served soon and the crowd stays as large as it is.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

from services.scheduler.core.values import Tier

SLOTS = 8
"""Permits of the device."""
MODELS = {"chat": 1, "speech": 1, "image": 2}
"""What a request costs, by model."""
_LENGTH = 1 << 13
_SEED = 7


@dataclass(frozen=True, slots=True)
class Case:
    """How many wait, and for how many fairness keys."""

    waiting: int
    keys: int

    def __str__(self) -> str:
        return f"{self.waiting:,} waiting, {self.keys:,} key{'s' * (self.keys > 1)}"


@dataclass(frozen=True, slots=True)
class Line:
    """One who asks."""

    tier: Tier
    model: str
    key: str


def crowd(case: Case) -> Iterator[Line]:
    """Those who wait all the while."""
    tiers = (Tier.FREE, Tier.FREE, Tier.FREE, Tier.BACKGROUND)
    lines = _lines(case, tiers)
    return (next(lines) for _ in range(case.waiting + SLOTS))


def newcomers(case: Case) -> Iterator[Line]:
    """Those who come while it is measured; without end."""
    return _lines(case, (Tier.PAID, Tier.SUB, Tier.FREE))


def _lines(case: Case, tiers: tuple[Tier, ...]) -> Iterator[Line]:
    chance = random.Random(_SEED)
    models = tuple(MODELS)
    return cycle(
        [
            Line(chance.choice(tiers), chance.choice(models), f"key-{chance.randrange(case.keys)}")
            for _ in range(_LENGTH)
        ]
    )
