"""Who holds how much of which device until when, and what may still be given out.

    headroom(tier) = min(free - Σ (granted - materialised)⁺, total - Σ granted)
                     - reserve - floor(tier)

By the device: memory that a holder has taken up is missing from `free` already and is counted
there alone; what it has been promised and not taken up is counted in the sum alone. So nothing
counts twice, and nothing is forgotten.

By right: a lease is one until it ends. A holder that gives memory back to the device, or crashes,
makes the device look emptier than its last report would have it; until it has released or expired,
what it was granted is not granted again.

Expiry needs no timer: every call begins by dropping what has run out by the `now` it is given.
Sums are kept running, so that a call costs O(log n) at most; listing costs what it lists.
"""

import heapq
from dataclasses import dataclass, replace

from services.broker.core.values import (
    Ask,
    Budget,
    DenialReason,
    Denied,
    Entry,
    Full,
    Granted,
    Lease,
    Memory,
    Released,
    Renewed,
    Tier,
)

_SLACK = 64


@dataclass(slots=True)
class _Sums:
    """Running totals of one device's leases."""

    granted_mib: int = 0
    materialised_mib: int = 0
    unmaterialised_mib: int = 0

    def count(self, lease: Lease, sign: int) -> None:
        self.granted_mib += sign * lease.granted_mib
        self.materialised_mib += sign * lease.materialised_mib
        self.unmaterialised_mib += sign * lease.unmaterialised_mib


class Ledger:
    """All leases of one broker, at most `max_leases`."""

    def __init__(self, max_leases: int) -> None:
        self._max_leases = max_leases
        self._leases: dict[str, Lease] = {}  # in order of granting
        self._requests: dict[tuple[str, str], str] = {}
        self._sums: dict[str, _Sums] = {}
        # (expiry at the time of entry, lease). Renewing leaves an entry behind its lease's true
        # expiry; it is put right when it comes up.
        self._due: list[tuple[int, str]] = []

    def repeated(self, holder: str, request_id: str, now_ms: int) -> Lease | None:
        """The live lease that this request of this holder has been granted before."""
        self._expire(now_ms)
        name = self._requests.get((holder, request_id)) if request_id else None
        return self._leases[name] if name else None

    def acquire(self, ask: Ask, budget: Budget, now_ms: int) -> Granted | Lease | Denied | Full:
        """Decide on a wish.

        1. Asked before: the same lease, nothing new.
        2. The ledger is at its bound: Full.
        3. Less headroom than the minimum and what must be left: Denied; never_fits if even an
           empty device has less.
        4. Granted: as much of the preferred amount as there is beyond what must be left.
        """
        if known := self.repeated(ask.holder, ask.request_id, now_ms):
            return known
        if len(self._leases) >= self._max_leases:
            return Full(self._max_leases)
        headroom, ceiling = (
            self._headroom(ask.device, budget, ask.tier),
            budget.ceiling_mib(ask.tier),
        )
        if headroom < ask.minimum_mib + ask.leave_mib:
            never = ask.minimum_mib + ask.leave_mib > ceiling
            reason = DenialReason.NEVER_FITS if never else DenialReason.NO_HEADROOM
            return Denied(reason, headroom, ceiling)
        lease = _lease_of(ask, min(ask.preferred_mib, headroom - ask.leave_mib), now_ms)
        self._add(lease)
        return Granted(now_ms, lease)

    def renew(
        self,
        lease_id: str,
        materialised_mib: int,
        ttl_ms: int,
        now_ms: int,
        *,
        shrink_to_mib: int = 0,
    ) -> Renewed | None:
        """Extend a lease and note what of it is in use; None if there is no such lease.

        `ttl_ms` 0 means the one it was granted with. A renewal never shortens a lease, and never
        raises what was granted; `shrink_to_mib` lowers it.
        """
        self._expire(now_ms)
        lease = self._leases.get(lease_id)
        if lease is None:
            return None
        expires = max(lease.expires_unix_ms, now_ms + (ttl_ms or lease.ttl_ms))
        lowered = shrink_to_mib if 0 < shrink_to_mib < lease.granted_mib else None
        entry = Renewed(now_ms, lease_id, materialised_mib, expires, lowered)
        self._renewed(lease, entry)
        return entry

    def release(self, lease_id: str, now_ms: int) -> Released | None:
        """End a lease; None if it had ended already."""
        self._expire(now_ms)
        return Released(now_ms, lease_id) if self._drop(lease_id) else None

    def get(self, lease_id: str) -> Lease:
        """A lease that is known to live."""
        return self._leases[lease_id]

    def leases(self, now_ms: int, holder_prefix: str = "", device: str = "") -> list[Lease]:
        """Live leases, oldest first; empty filters match everything."""
        self._expire(now_ms)
        return [
            lease
            for lease in self._leases.values()
            if lease.holder.startswith(holder_prefix) and device in ("", lease.device)
        ]

    def memory(self, device: str, budget: Budget, now_ms: int) -> Memory:
        """The figures of one device."""
        self._expire(now_ms)
        sums, free = self._of(device), self._free(device, budget)
        return Memory(
            free_mib=free,
            leased_mib=sums.granted_mib,
            unmaterialised_mib=sums.unmaterialised_mib,
            foreign_mib=max(0, budget.total_mib - free - sums.materialised_mib),
            headroom_mib={tier: self._headroom(device, budget, tier) for tier in Tier},
        )

    def promised_mib(self, device: str, now_ms: int) -> int:
        """What of a device is lent and not in use yet."""
        self._expire(now_ms)
        return self._of(device).unmaterialised_mib

    def replay(self, entry: Entry) -> None:
        """Take in one journal entry, in the order in which they were written."""
        self._expire(entry.at_unix_ms)
        match entry:
            case Granted(lease=lease):
                self._drop(lease.lease_id)
                self._add(lease)
            case Renewed(lease_id=name):
                if known := self._leases.get(name):
                    self._renewed(known, entry)
            case Released(lease_id=name):
                self._drop(name)

    def resume(self, now_ms: int, max_ttl_ms: int) -> None:
        """After a replay: give every lease at least its full time to live from now.

        Nobody could renew while the broker was away, so a lease is judged by the last moment the
        broker is known to have lived (the replay does that), and its holder gets one whole period
        to be heard again. `max_ttl_ms` bounds the wait should the clock have been set back.
        """
        for lease in list(self._leases.values()):
            expires = max(now_ms + lease.ttl_ms, min(lease.expires_unix_ms, now_ms + max_ttl_ms))
            self._leases[lease.lease_id] = replace(lease, expires_unix_ms=expires)
        self._rebuild_due()

    def _headroom(self, device: str, budget: Budget, tier: Tier) -> int:
        sums = self._of(device)
        by_device = self._free(device, budget) - sums.unmaterialised_mib
        by_right = budget.total_mib - sums.granted_mib
        return max(0, min(by_device, by_right) - budget.kept_mib(tier))

    def _free(self, device: str, budget: Budget) -> int:
        if budget.free_mib is not None:
            return budget.free_mib
        return max(0, budget.total_mib - self._of(device).materialised_mib)

    def _of(self, device: str) -> _Sums:
        return self._sums.get(device) or _Sums()

    def _add(self, lease: Lease) -> None:
        self._leases[lease.lease_id] = lease
        if lease.request_id:
            self._requests[lease.holder, lease.request_id] = lease.lease_id
        self._sums.setdefault(lease.device, _Sums()).count(lease, 1)
        heapq.heappush(self._due, (lease.expires_unix_ms, lease.lease_id))

    def _renewed(self, lease: Lease, entry: Renewed) -> None:
        after = replace(
            lease,
            granted_mib=lease.granted_mib if entry.granted_mib is None else entry.granted_mib,
            materialised_mib=entry.materialised_mib,
            expires_unix_ms=entry.expires_unix_ms,
            renewed_unix_ms=entry.at_unix_ms,
        )
        self._leases[lease.lease_id] = after
        self._sums[lease.device].count(lease, -1)
        self._sums[lease.device].count(after, 1)

    def _drop(self, lease_id: str) -> bool:
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return False
        self._requests.pop((lease.holder, lease.request_id), None)
        self._sums[lease.device].count(lease, -1)
        # Released leases leave their entry behind until it is due; short leases with long times
        # to live must not pile up.
        if len(self._due) > 2 * len(self._leases) + _SLACK:
            self._rebuild_due()
        return True

    def _rebuild_due(self) -> None:
        self._due = [(x.expires_unix_ms, x.lease_id) for x in self._leases.values()]
        heapq.heapify(self._due)

    def _expire(self, now_ms: int) -> None:
        while self._due and self._due[0][0] <= now_ms:
            _, lease_id = heapq.heappop(self._due)
            lease = self._leases.get(lease_id)
            if lease is None:
                continue
            if lease.expires_unix_ms > now_ms:
                heapq.heappush(self._due, (lease.expires_unix_ms, lease_id))
            else:
                self._drop(lease_id)


def _lease_of(ask: Ask, granted_mib: int, now_ms: int) -> Lease:
    return Lease(
        lease_id=ask.lease_id,
        holder=ask.holder,
        device=ask.device,
        kind=ask.kind,
        tier=ask.tier,
        granted_mib=granted_mib,
        materialised_mib=0,
        granted_unix_ms=now_ms,
        expires_unix_ms=now_ms + ask.ttl_ms,
        ttl_ms=ask.ttl_ms,
        request_id=ask.request_id,
    )
