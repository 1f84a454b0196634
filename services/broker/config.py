"""The `broker` section of cohabit.yaml, and what it means for a device of a given size."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from chassis.config import Section
from services.broker.core import Floors
from services.broker.device_simulated import Visit

# On a card: what drivers and libraries take without asking (contexts, workspaces, fragments).
_CARD = Floors(paid_mib=256, sub_mib=512, free_mib=768, background_mib=1024)
# Elsewhere the same share of the capacity as on a 32 GiB card, so that small hosts lend as well.
_SHARE = 128
# Host memory also carries the kernel, the page cache and the house itself.
_HOST_RESERVE_SHARE = 8


_MOST_MIB = 1 << 40  # sums of many stay within the wire's 64 bits
_MOST_S = 2_592_000
"""Thirty days; in milliseconds they fit the wire's 32 bits."""

_Mib = Annotated[int, Field(gt=0, le=_MOST_MIB)]
_MibOrNone = Annotated[int, Field(ge=0, le=_MOST_MIB)]
_Seconds = Annotated[float, Field(gt=0, le=_MOST_S)]
TenantName = Annotated[str, Field(min_length=1, max_length=64)]


class FloorSection(Section):
    """MiB that a new lease of each tier leaves free."""

    paid: _MibOrNone
    sub: _MibOrNone
    free: _MibOrNone
    background: _MibOrNone

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.paid <= self.sub <= self.free <= self.background:
            raise ValueError("expected paid <= sub <= free <= background: paid dips furthest")
        return self


class ForeignSection(Section):
    """A tenant of the simulated device that holds no lease: what it wants, and when."""

    name: str = Field(min_length=1, max_length=64)
    at_s: float = Field(default=0.0, ge=0, le=_MOST_S)
    """When it comes, counted from the broker's start."""
    mib: _Mib
    """It takes what is free up to this much. Entries of one name add up."""
    for_s: _Seconds | None = None
    until_s: _Seconds | None = None
    """When it goes, in one of two ways; without either it stays."""

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.for_s is not None and self.until_s is not None:
            raise ValueError("expected for_s or until_s, not both")
        if self.until_s is not None and self.until_s <= self.at_s:
            raise ValueError("expected until_s to be later than at_s")
        return self

    @property
    def visit(self) -> Visit:
        """As the device plays it."""
        end_s = self.at_s + self.for_s if self.for_s is not None else self.until_s
        until_ms = None if end_s is None else round(end_s * 1000)
        return Visit(self.name, self.mib, round(self.at_s * 1000), until_ms)


class BrokerConfig(Section):
    """Which device is lent from, how much is kept back, how long leases last."""

    device: Literal["auto", "cpu", "nvml", "simulated"] = "auto"
    """auto: the cards, where the NVIDIA driver answers with at least one, else cpu."""
    capacity_mib: _Mib | None = None
    """cpu: lend at most this much of the host's memory. simulated: required."""
    floor_mib: FloorSection | None = None
    """Default on a card 256/512/768/1024 from paid to background; on cpu and simulated the least
    of that and 1/128, 2/128, 3/128, 4/128 of the capacity."""
    reserve_mib: _MibOrNone | None = None
    """Lent to nobody. Default 0; on cpu without capacity_mib an eighth of the memory."""
    reserves: Mapping[TenantName, _Mib] = Field(default={}, max_length=64)
    """MiB by tenant: what programs that hold no lease will yet grow by, beyond what they hold
    already. Lent to nobody, on every device."""
    foreign: Sequence[ForeignSection] = Field(default=(), max_length=64)
    """simulated: tenants that take memory and give it back on a script."""
    lease_ttl_s: Annotated[float, Field(ge=0.2, le=_MOST_S)] = 30.0
    max_lease_ttl_s: _Seconds = 600.0
    max_leases: PositiveInt = 4096
    default_tier: Literal["paid", "sub", "free", "background"] = "free"
    """Of an AcquireLease that states none."""
    read_deadline_s: _Seconds = 2.0
    """A driver silent for this long counts as unreachable."""
    warm_floor_mib: _MibOrNone | None = None
    """Warming the page cache stops below this much available memory; default an eighth."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.lease_ttl_s > self.max_lease_ttl_s:
            raise ValueError("expected lease_ttl_s to be at most max_lease_ttl_s")
        if self.device == "simulated" and self.capacity_mib is None:
            raise ValueError("expected capacity_mib, which a simulated device needs")
        if self.foreign and self.device != "simulated":
            raise ValueError("expected no foreign tenants: a real device has its own")
        if self.device == "nvml" and self.capacity_mib is not None:
            raise ValueError("expected no capacity_mib: a card knows its own; set reserve_mib")
        return self

    def floors_of(self, total_mib: int, *, card: bool) -> Floors:
        """The floors of a device of this size."""
        if own := self.floor_mib:
            return Floors(own.paid, own.sub, own.free, own.background)
        if card:
            return _CARD
        return Floors(
            paid_mib=min(_CARD.paid_mib, total_mib // _SHARE),
            sub_mib=min(_CARD.sub_mib, total_mib * 2 // _SHARE),
            free_mib=min(_CARD.free_mib, total_mib * 3 // _SHARE),
            background_mib=min(_CARD.background_mib, total_mib * 4 // _SHARE),
        )

    def reserve_of(self, total_mib: int, *, host: bool) -> int:
        """What is lent to nobody on a device of this size."""
        kept_mib = self.reserve_mib
        if kept_mib is None:
            unbounded = host and self.capacity_mib is None
            kept_mib = total_mib // _HOST_RESERVE_SHARE if unbounded else 0
        return kept_mib + sum(self.reserves.values())

    def warm_floor_of(self, total_mib: int) -> int:
        """Where warming stops on a host of this size."""
        if self.warm_floor_mib is not None:
            return self.warm_floor_mib
        return total_mib // _HOST_RESERVE_SHARE
