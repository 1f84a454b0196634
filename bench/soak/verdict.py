"""Whether memory stayed flat. Pure.

The method: samples of the first fifth of the time are the warm-up, in which caches and stores fill
to their bounds, and are left out. Of what remains, the mean of the first quarter is compared with
that of the last: growth is last over first, less one. The mean of a quarter smooths over what one
request does, or a collection of garbage, and a leak that is worth the name shows in it. To shrink
is no fault. The straight line through all that remains is told beside it, for a slow leak.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.soak.memory import Sample

WARM_UP = 0.2
MOST_GROWTH = 0.02
LEAST_SAMPLES = 8


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one role, or of all together."""

    first_mib: float
    last_mib: float
    mib_per_h: float
    """Slope of the straight line through the samples, by least squares."""

    @property
    def share(self) -> float:
        """0.02: two per cent more in the end."""
        return self.last_mib / self.first_mib - 1.0 if self.first_mib else 0.0

    @property
    def flat(self) -> bool:
        """It did not grow by more than may be."""
        return self.share <= MOST_GROWTH

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return asdict(self) | {"share": self.share, "flat": self.flat}


def grown(at_s: Sequence[float], mib: Sequence[float]) -> Growth:
    """From samples in order of time. Raises ValueError when there are too few to tell."""
    since_s = at_s[0] + WARM_UP * (at_s[-1] - at_s[0]) if at_s else 0.0
    kept = [pair for pair in zip(at_s, mib, strict=True) if pair[0] >= since_s]
    if len(kept) < LEAST_SAMPLES:
        raise ValueError(f"{len(kept)} samples after the warm-up do not tell; let it run longer")
    quarter = len(kept) // 4
    slope = statistics.linear_regression(*zip(*kept, strict=True)).slope
    values = [value for _, value in kept]
    return Growth(
        statistics.fmean(values[:quarter]), statistics.fmean(values[-quarter:]), slope * 3600
    )


def by_role(samples: Sequence[Sample]) -> dict[str, Growth]:
    """Of every role that was ever seen."""
    at_s = [one.at_s for one in samples]
    roles = sorted({role for one in samples for role in one.mib})
    return {role: grown(at_s, [one.mib.get(role, 0.0) for one in samples]) for role in roles}


def in_all(samples: Sequence[Sample]) -> Growth:
    """Of all processes together."""
    return grown([one.at_s for one in samples], [one.total_mib for one in samples])
