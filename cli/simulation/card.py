"""The device twice: as the real ledger counts it, and as it truly is.

The truth is counted apart from every lease: what engines took up and gave back, and what foreign
tenants hold. Whoever takes more than the card has is an out-of-memory, whatever the ledger said.
"""

from dataclasses import dataclass, field

from cli.simulation.setup import CardSpec
from services.broker.core import Ask, DenialReason, Denied, Granted, LeaseKind, Ledger
from services.broker.core import Tier as LeaseTier
from services.scheduler.core.values import Tier

DEVICE = "sim0"
_FOR_EVER_MS = 10**12
"""Holders do not die in a replay, so no lease of theirs has to end by itself."""


@dataclass(frozen=True, slots=True)
class No:
    """The broker's no."""

    never: bool
    headroom_mib: int


@dataclass(slots=True)
class Use:
    """What of the card is truly in use."""

    resident_mib: int = 0
    transient_mib: int = 0
    foreign_mib: int = 0

    @property
    def mib(self) -> int:
        """All of it."""
        return self.resident_mib + self.transient_mib + self.foreign_mib


@dataclass(slots=True)
class Card:
    """One device under one ledger."""

    spec: CardSpec
    use: Use = field(default_factory=Use)
    out_of_memory: int = 0
    _ledger: Ledger = field(init=False)
    _names: int = 0
    _wanted_mib: int = 0
    """By foreign tenants."""

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.spec.max_leases)

    def lease(
        self,
        now_ms: int,
        kind: LeaseKind,
        tier: Tier,
        *,
        preferred_mib: int,
        minimum_mib: int,
        leave_mib: int = 0,
    ) -> tuple[str, int] | No:
        """A lease and its size, or no."""
        self._tenants_try(now_ms)
        self._names += 1
        ask = Ask(
            lease_id=f"lease-{self._names}",
            holder="simulation",
            device=DEVICE,
            kind=kind,
            tier=LeaseTier(tier),
            preferred_mib=preferred_mib,
            minimum_mib=minimum_mib,
            ttl_ms=_FOR_EVER_MS,
            request_id="",
            leave_mib=leave_mib,
        )
        budget = self.spec.budget(max(0, self.spec.total_mib - self.use.mib))
        match self._ledger.acquire(ask, budget, now_ms):
            case Granted(lease=lease):
                return lease.lease_id, lease.granted_mib
            case Denied() as denied:
                return No(denied.reason is DenialReason.NEVER_FITS, denied.headroom_mib)
            case _:
                return No(never=False, headroom_mib=0)

    def report(self, now_ms: int, lease_id: str, materialised_mib: int) -> None:
        """A holder says how much of its lease is in use."""
        self._ledger.renew(lease_id, materialised_mib, 0, now_ms)

    def release(self, now_ms: int, lease_id: str) -> None:
        """A lease ends."""
        self._ledger.release(lease_id, now_ms)

    @property
    def leases(self) -> int:
        """How many live."""
        return len(self._ledger.leases(0))

    def take(self, kind: LeaseKind, mib: int) -> None:
        """An engine takes memory up."""
        self._change(kind, mib)
        if self.use.mib > self.spec.total_mib:
            self.out_of_memory += 1

    def give(self, kind: LeaseKind, mib: int) -> None:
        """An engine's memory is back."""
        self._change(kind, -mib)

    def foreign(self, now_ms: int, mib: int) -> None:
        """Foreign tenants now want `mib` together, and go on trying until they have it."""
        self._wanted_mib = mib
        self.use.foreign_mib = min(mib, self.use.foreign_mib)
        self._tenants_try(now_ms)

    def _tenants_try(self, now_ms: int) -> None:
        """They do not ask the ledger, but what it has promised is left to whom it was promised: a
        race between two allocations is nothing that a replay could settle."""
        short_mib = self._wanted_mib - self.use.foreign_mib
        if short_mib <= 0:
            return
        budget = self.spec.budget(self.spec.total_mib)
        promised = self._ledger.memory(DEVICE, budget, now_ms).unmaterialised_mib
        free_mib = self.spec.total_mib - self.use.mib - promised
        self.use.foreign_mib += max(0, min(short_mib, free_mib))

    def _change(self, kind: LeaseKind, mib: int) -> None:
        if kind is LeaseKind.RESIDENT:
            self.use.resident_mib += mib
        else:
            self.use.transient_mib += mib
