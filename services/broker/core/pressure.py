"""Who is asked to shrink, and by how much, when a higher tier was refused. Pure.

Only resident leases are asked (a request's peak ends by itself), and only those of a lower tier
than the refused one. The lowest tier goes first; within a tier each is asked in proportion to what
it holds. The broker does not know who can shrink cheaply: a share of each empties nobody, and
whoever is refused again asks again for what is still missing.

A storm of refusals is one message a lease and period: what comes within the period is dropped,
since its asker, if it still needs the memory, comes back later.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from services.broker.core.values import Lease, LeaseKind, Tier


@dataclass(frozen=True, slots=True)
class Shrink:
    """A wish that one lease be made smaller."""

    lease_id: str
    holder: str
    shrink_mib: int
    refused_tier: Tier


def shares(leases: Iterable[Lease], refused_tier: Tier, missing_mib: int) -> list[Shrink]:
    """How `missing_mib` is spread over `leases`; less comes together where they hold less."""
    asked = [x for x in leases if x.kind is LeaseKind.RESIDENT and x.tier < refused_tier]
    asked.sort(key=lambda lease: lease.tier)
    found: list[Shrink] = []
    for _, group in groupby(asked, key=lambda lease: lease.tier):
        tier = list(group)
        held_mib = sum(lease.claimed_mib for lease in tier)
        here_mib = min(missing_mib, held_mib)
        missing_mib -= here_mib
        for lease in tier:
            # Rounded up: the shares together are at least what is missing.
            share_mib = -(-here_mib * lease.claimed_mib // held_mib) if held_mib else 0
            if share_mib:
                found.append(Shrink(lease.lease_id, lease.holder, share_mib, refused_tier))
    return found


class Pressure:
    """Lets each lease be asked at most once in `period_ms`."""

    def __init__(self, period_ms: int) -> None:
        self._period_ms = period_ms
        self._asked: dict[str, int] = {}  # when, in the order of asking

    def ask(
        self, leases: Iterable[Lease], refused_tier: Tier, missing_mib: int, now_ms: int
    ) -> list[Shrink]:
        """Who is to be told now that `missing_mib` were missing for `refused_tier`."""
        self._forget(now_ms)
        asks = [
            shrink
            for shrink in shares(leases, refused_tier, missing_mib)
            if shrink.lease_id not in self._asked
        ]
        self._asked |= {shrink.lease_id: now_ms for shrink in asks}
        return asks

    def _forget(self, now_ms: int) -> None:
        while self._asked:
            lease_id, at_ms = next(iter(self._asked.items()))
            if now_ms - at_ms < self._period_ms:
                return
            del self._asked[lease_id]
