"""Traces out of thin air, the same for the same seed: steady, bursty, adversarial, diurnal.

    steady       Poisson arrivals
    bursty       quiet, with bursts in which a few keys ask for one model
    adversarial  models that do not fit together in turn, one at a time: made to thrash
    diurnal      Poisson arrivals of a rate that follows the day, lowest at four in the night

Models and keys are chosen by Zipf's law: few are asked for often, many seldom. What is quick tends
to be asked for most, as it is in life; in which order exactly is drawn from the seed.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from cli.simulation.kinds import Kind
from cli.simulation.setup import Profile, Setup
from cli.simulation.trace import Line, TierName

_TIERS: tuple[TierName, ...] = ("paid", "sub", "free", "background")
_TIER_WEIGHTS = (0.2, 0.3, 0.4, 0.1)
_KEY_SKEW = 0.8
_HOUR_S = 3600.0
_BURST_LENGTH = 24
_BURST_SHARE = 0.8
_BURST_S = 20.0
_NIGHT = 0.15
"""The lowest rate of a day, as a share of the highest."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How much of it."""

    requests: int
    hours: float
    seed: int = 0
    keys: int = 40
    skew: float = 1.0
    """Exponent of Zipf's law over models; 0: all alike."""


class _Chance:
    """Everything that is drawn, from one seed."""

    def __init__(self, setup: Setup, wish: Wish) -> None:
        self.random = random.Random(wish.seed)  # noqa: S311 - not for secrets
        self.profiles = sorted(
            setup.profiles.values(),
            key=lambda profile: (
                profile.run_ms(_typical(profile)) * self.random.lognormvariate(0, 1)
            ),
        )
        self._models = zipf_weights(len(self.profiles), wish.skew)
        self._keys = [f"key-{number:02}" for number in range(1, wish.keys + 1)]
        self._key_weights = zipf_weights(wish.keys, _KEY_SKEW)
        self._tier_of = {key: self._tier() for key in self._keys}

    def profile(self) -> Profile:
        return self.random.choices(self.profiles, cum_weights=self._models)[0]

    def key(self) -> str:
        return self.random.choices(self._keys, cum_weights=self._key_weights)[0]

    def line(self, at_s: float, profile: Profile, key: str) -> Line:
        """A request of `key`, with work like that of the model's kind."""
        at, tier = round(at_s, 3), self._tier_of[key]
        if not profile.tokens_per_s:
            work_s = profile.work_ms / 1000 * self.random.uniform(0.7, 1.3)
            return Line(at, profile.key, tier, key, work_s=round(work_s, 3))
        most = profile.context_tokens or 8192
        prompt = min(int(self.random.lognormvariate(6.2, 0.9)) + 1, most * 3 // 4)
        answer = min(int(self.random.lognormvariate(5.0, 0.7)) + 1, most // 4)
        return Line(at, profile.key, tier, key, tokens=(prompt, answer))

    def _tier(self) -> TierName:
        return self.random.choices(_TIERS, _TIER_WEIGHTS)[0]


def trace(kind: Kind, setup: Setup, wish: Wish) -> list[Line]:
    """A trace of `wish.requests` lines over `wish.hours`, in order of time."""
    chance = _Chance(setup, wish)
    lines = list(_KINDS[kind](chance, setup, wish))
    lines.sort(key=lambda line: line.t)
    return lines


def _typical(profile: Profile) -> Line:
    return Line(0, profile.key, tokens=(500, 150))


def zipf_weights(count: int, skew: float) -> list[float]:
    """Cumulative weights of ranks 1 to `count`: rank r weighs r^-skew."""
    return list(accumulate(rank**-skew for rank in range(1, count + 1)))


def _steady(chance: _Chance, setup: Setup, wish: Wish) -> Iterator[Line]:
    del setup
    for _ in range(wish.requests):
        at_s = chance.random.uniform(0, wish.hours * _HOUR_S)
        yield chance.line(at_s, chance.profile(), chance.key())


def _diurnal(chance: _Chance, setup: Setup, wish: Wish) -> Iterator[Line]:
    del setup
    for _ in range(wish.requests):
        while True:
            at_s = chance.random.uniform(0, wish.hours * _HOUR_S)
            if chance.random.random() < _rate(at_s):
                break
        yield chance.line(at_s, chance.profile(), chance.key())


def _rate(at_s: float) -> float:
    """Of the day's highest, at this time of the day: four is lowest, sixteen highest."""
    wave = (1 - math.cos((at_s / _HOUR_S - 4) / 24 * 2 * math.pi)) / 2
    return _NIGHT + (1 - _NIGHT) * wave


def _bursty(chance: _Chance, setup: Setup, wish: Wish) -> Iterator[Line]:
    quiet = round(wish.requests * (1 - _BURST_SHARE))
    yield from _steady(chance, setup, replace(wish, requests=quiet))
    left = wish.requests - quiet
    while left:
        length = min(left, chance.random.randint(1, 2 * _BURST_LENGTH))
        begin_s = chance.random.uniform(0, max(0.0, wish.hours * _HOUR_S - _BURST_S))
        profile, keys = chance.profile(), [chance.key() for _ in range(3)]
        for _ in range(length):
            at_s = begin_s + chance.random.uniform(0, _BURST_S)
            yield chance.line(at_s, profile, chance.random.choice(keys))
        left -= length


def _adversarial(chance: _Chance, setup: Setup, wish: Wish) -> Iterator[Line]:
    rivals = _rivals(chance.profiles, setup.card.total_mib)
    step_s = wish.hours * _HOUR_S / wish.requests
    for number in range(wish.requests):
        profile = rivals[number % len(rivals)]
        at_s = (number + chance.random.uniform(0, 0.5)) * step_s
        yield chance.line(at_s, profile, chance.key())


def _rivals(profiles: Sequence[Profile], total_mib: int) -> list[Profile]:
    """Models of which no two in turn fit together; all there are if any two fit."""
    largest = sorted(profiles, key=lambda profile: -profile.resident_mib)
    rivals = largest[:2]
    for profile in largest[2:]:
        if profile.resident_mib + rivals[-1].resident_mib > total_mib:
            rivals.append(profile)
    turns = [*rivals, rivals[0]]
    if all(a.resident_mib + b.resident_mib > total_mib for a, b in pairwise(turns)):
        return rivals
    return largest


_KINDS: dict[Kind, Callable[[_Chance, Setup, Wish], Iterator[Line]]] = {
    Kind.STEADY: _steady,
    Kind.BURSTY: _bursty,
    Kind.ADVERSARIAL: _adversarial,
    Kind.DIURNAL: _diurnal,
}
