"""Figures of the contracts in words: memory, spans of time, tiers, states, foreign text."""

from cli.console import printable
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2

STATE_STYLES = {"ready": "green", "failed": "red", "loading": "yellow", "draining": "yellow"}
"""Colours of states, by name."""
_UNITS = ((60, 1, "s"), (3_600, 60, "min"), (48 * 3_600, 3_600, "h"))
"""Below how many seconds a unit is used, and how many it has."""


def mib(count: int) -> str:
    """Memory, e.g. "14,200 MiB"."""
    return f"{count:,} MiB"


def span(ms: float) -> str:
    """A span of time in its largest unit, e.g. "12 s", "4 min"; never negative."""
    seconds = int(max(0.0, ms) / 1000)
    for most_s, unit_s, unit in _UNITS:
        if seconds < most_s:
            return f"{seconds // unit_s} {unit}"
    return f"{seconds // 86_400} d"


def tier_name(tier: int) -> str:
    """A tier, e.g. "paid"; the number of one that is not known here."""
    known = common_pb2.Tier.DESCRIPTOR.values_by_number.get(tier)
    return known.name.removeprefix("TIER_").lower() if known else str(tier)


def state_name(state: int) -> str:
    """A model's state, e.g. "ready"; the number of one that is not known here."""
    known = models_pb2.ModelState.DESCRIPTOR.values_by_number.get(state)
    return known.name.removeprefix("MODEL_STATE_").lower() if known else str(state)


def flat(text: str) -> str:
    """Foreign text on one line, without control characters."""
    return " ".join(printable(text).split())


def counted(count: int, noun: str) -> str:
    """A count with its noun, e.g. "1 lease", "3 leases"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
