"""The words of the ledger: leases, what is asked, what is answered, what the journal must hold.

Memory is in MiB, time in milliseconds since the Unix epoch. Everything here is frozen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Tier(IntEnum):
    """How urgent; the numbers are those of the contract."""

    BACKGROUND = 1
    FREE = 2
    SUB = 3
    PAID = 4


class LeaseKind(IntEnum):
    """What a lease is for; the numbers are those of the contract."""

    RESIDENT = 1
    TRANSIENT = 2


class DenialReason(StrEnum):
    """Why there is no lease."""

    NO_HEADROOM = "no_headroom"
    NEVER_FITS = "never_fits"


@dataclass(frozen=True, slots=True)
class Floors:
    """Memory left free under each tier: the higher the tier, the deeper it may dip."""

    paid_mib: int
    sub_mib: int
    free_mib: int
    background_mib: int

    def of(self, tier: Tier) -> int:
        """What a lease of `tier` leaves free."""
        match tier:
            case Tier.PAID:
                return self.paid_mib
            case Tier.SUB:
                return self.sub_mib
            case Tier.FREE:
                return self.free_mib
            case Tier.BACKGROUND:
                return self.background_mib


@dataclass(frozen=True, slots=True)
class Budget:
    """What one device has at this moment, and what of it is kept back."""

    total_mib: int
    free_mib: int | None
    """As the device measures it; None where nothing measures, and holders' reports are the use."""
    reserve_mib: int
    """Lent to nobody: kept back as such, and for the growth of tenants without a lease."""
    floors: Floors

    def ceiling_mib(self, tier: Tier) -> int:
        """The most `tier` could be granted were the device empty."""
        return max(0, self.total_mib - self.kept_mib(tier))

    def kept_mib(self, tier: Tier) -> int:
        """What a lease of `tier` leaves alone."""
        return self.reserve_mib + self.floors.of(tier)


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted right to hold memory until it expires."""

    lease_id: str
    holder: str
    device: str
    kind: LeaseKind
    tier: Tier
    granted_mib: int
    materialised_mib: int
    granted_unix_ms: int
    expires_unix_ms: int
    ttl_ms: int
    request_id: str
    renewed_unix_ms: int = 0
    """0: never yet."""

    @property
    def unmaterialised_mib(self) -> int:
        """Promised but not taken up yet: the device still shows it as free."""
        return max(0, self.granted_mib - self.materialised_mib)

    @property
    def claimed_mib(self) -> int:
        """What it keeps from others: its right, or its use where that is more."""
        return max(self.granted_mib, self.materialised_mib)


@dataclass(frozen=True, slots=True)
class Ask:
    """A wish for memory. `lease_id` is the fresh name the lease will have if it is granted."""

    lease_id: str
    holder: str
    device: str
    kind: LeaseKind
    tier: Tier
    preferred_mib: int
    minimum_mib: int
    ttl_ms: int
    request_id: str
    leave_mib: int = 0
    """Headroom that must remain beyond the grant."""


@dataclass(frozen=True, slots=True)
class Denied:
    """A normal no."""

    reason: DenialReason
    headroom_mib: int
    ceiling_mib: int


@dataclass(frozen=True, slots=True)
class Full:
    """The ledger holds as many leases as it may."""

    max_leases: int


@dataclass(frozen=True, slots=True)
class Granted:
    """Journal entry: a lease began, or (compacted) stands."""

    at_unix_ms: int
    lease: Lease


@dataclass(frozen=True, slots=True)
class Renewed:
    """Journal entry: a lease goes on."""

    at_unix_ms: int
    lease_id: str
    materialised_mib: int
    expires_unix_ms: int
    granted_mib: int | None = None
    """The lowered grant; None: as before."""


@dataclass(frozen=True, slots=True)
class Released:
    """Journal entry: a lease was given back."""

    at_unix_ms: int
    lease_id: str


Entry = Granted | Renewed | Released


@dataclass(frozen=True, slots=True)
class Memory:
    """One device as the ledger sees it."""

    free_mib: int
    leased_mib: int
    unmaterialised_mib: int
    foreign_mib: int
    headroom_mib: Mapping[Tier, int]
