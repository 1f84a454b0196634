"""A record in figures: waits, ends, swaps, memory, utilisation. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from cli.simulation.record import End, Fate, Record
from cli.simulation.setup import Setup
from services.scheduler.core.values import Tier


@dataclass(frozen=True, slots=True)
class Waits:
    """How the requests of one tier, or of one key, fared."""

    name: str
    requests: int
    ends: Mapping[str, int]
    p50_s: float | None
    """Of those that were granted: from arrival to grant. None: none was."""
    p99_s: float | None
    worst_s: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What a person wants to know of a replay."""

    policy: str
    requests: int
    hours: float
    ends: Mapping[str, int]
    refused: Mapping[str, int]
    """By reason."""
    cut_off: Mapping[str, int]
    """By reason."""
    tiers: tuple[Waits, ...]
    keys: tuple[Waits, ...]
    """The one with the most requests first."""
    loads: int
    """Every load that ended READY, cold loads included."""
    cold_loads: int
    """Of these the first of their model."""
    cancelled_loads: int
    evictions: int
    out_of_memory: int
    memory_used: float
    """Of the card's memory over time, what models and their requests held."""
    permits_used: float
    """Of all permits over time."""
    replay_s: float
    requests_per_s: float


def figures(policy: str, setup: Setup, record: Record, replay_s: float) -> Figures:
    """Sum a record up."""
    fates, span_ms = record.fates, max(1, record.ended_ms)
    loaded = Counter(load.model for load in record.loads)
    permits = setup.settings.permits
    return Figures(
        policy=policy,
        requests=len(fates),
        hours=record.ended_ms / 3_600_000,
        ends=_ends(fates),
        refused=_reasons(fates, End.REFUSED),
        cut_off=_reasons(fates, End.CUT_OFF),
        tiers=tuple(_by_tier(fates)),
        keys=tuple(_by_key(fates)),
        loads=len(record.loads),
        cold_loads=len(loaded),
        cancelled_loads=len(record.given_up),
        evictions=len(record.evictions),
        out_of_memory=record.out_of_memory,
        memory_used=_memory_ms(record) / (setup.card.total_mib * span_ms),
        permits_used=record.permit_ms / (permits * span_ms),
        replay_s=replay_s,
        requests_per_s=len(fates) / max(replay_s, 1e-9),
    )


def percentile(ordered: list[int], share: float) -> int:
    """The nearest-rank percentile of values in order."""
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]


def _by_tier(fates: list[Fate]) -> Iterable[Waits]:
    groups: dict[Tier, list[Fate]] = {}
    for fate in fates:
        groups.setdefault(fate.tier, []).append(fate)
    return [_waits(tier.name.lower(), groups[tier]) for tier in sorted(groups, reverse=True)]


def _by_key(fates: list[Fate]) -> Iterable[Waits]:
    groups: dict[str, list[Fate]] = {}
    for fate in fates:
        groups.setdefault(fate.key, []).append(fate)
    ordered = sorted(groups, key=lambda key: (-len(groups[key]), key))
    return [_waits(key, groups[key]) for key in ordered]


def _waits(name: str, fates: list[Fate]) -> Waits:
    waits = sorted(wait for fate in fates if (wait := fate.waited_ms) is not None)
    if not waits:
        return Waits(name, len(fates), _ends(fates), None, None, None)
    p50, p99 = percentile(waits, 0.5), percentile(waits, 0.99)
    return Waits(name, len(fates), _ends(fates), p50 / 1000, p99 / 1000, waits[-1] / 1000)


def _ends(fates: list[Fate]) -> dict[str, int]:
    counted = Counter(fate.end for fate in fates)
    return {end.value: counted[end] for end in End}


def _reasons(fates: list[Fate], end: End) -> dict[str, int]:
    return dict(Counter(fate.why for fate in fates if fate.end is end).most_common())


def _memory_ms(record: Record) -> int:
    """MiB of models and their requests, summed over time."""
    states = [*record.memory, (record.ended_ms, 0, 0, 0)]
    return sum((b[0] - a[0]) * (a[1] + a[2]) for a, b in pairwise(states))
