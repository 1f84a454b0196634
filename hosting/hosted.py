"""One model of a service and all that is known about it, its instances included."""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field

from chassis.errors import Fault, Reason
from hosting.core import Record, Seen, State, model_state
from hosting.measured import Measured
from hosting.tenancy import Tenancy
from hosting.trial import Trial
from hosting.values import ModelSpec, Source


@dataclass(slots=True)
class Hosted:
    """One model and, while it is loaded, its instances in order of their beginning."""

    source: Source
    stamp: Hashable
    """Of what `spec` was made from."""
    spec: ModelSpec
    successor: Source | None = None
    """Describes it from its next load on: its configuration has changed while it was loaded."""
    removed: bool = False
    """It is configured no more: it takes nothing new."""
    record: Record = field(default_factory=Record)
    measured: Measured = field(default_factory=Measured)
    tenancies: list[Tenancy] = field(default_factory=list)
    """At most spec.max_instances."""
    gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One load begins at a time."""
    describing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Its files are looked at by one at a time."""
    trial: Trial | None = None
    """Set while its description is tried."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the next change, which puts a fresh one in its place."""

    @classmethod
    def of(cls, source: Source) -> "Hosted":
        """The model that `source` describes; blocks."""
        stamp = source.stamp()  # first: a change in between is seen the next time
        return cls(source, stamp, source.describe())

    @property
    def state(self) -> State:
        """The best among its instances."""
        return model_state((one.state for one in self.tenancies), self.record)

    @property
    def address(self) -> str:
        """Of the READY instance that runs least; empty: none is READY."""
        ready = [one for one in self.tenancies if one.state is State.READY]
        if not ready:
            return ""
        engine = min(ready, key=lambda one: len(one.permits)).engine
        return engine.address if engine is not None else ""

    @property
    def stale(self) -> bool:
        """What is loaded is not what the next load takes."""
        changed = any(one.spec != self.spec for one in self.tenancies)
        return changed or (self.successor is not None and bool(self.tenancies))

    @property
    def is_measured(self) -> bool:
        """Whether it is leased for by what was seen."""
        return self.spec.measure and self.measured.resident_mib > 0

    @property
    def resident_mib(self) -> int:
        """What is leased for an instance."""
        return self.measured.resident_mib if self.is_measured else self.spec.resident_mib

    @property
    def peak_transient_mib(self) -> int:
        """What is leased for a request beside that."""
        seen_mib = self.measured.peak_transient_mib if self.is_measured else 0
        return seen_mib or self.spec.peak_transient_mib

    def seen_by(self, lease_id: str) -> list[Seen]:
        """Its instances as a load finds them that brings `lease_id`."""
        return [
            Seen(one.state, leaving=one.leaving, own=one.lease.lease_id == lease_id)
            for one in self.tenancies
        ]

    def named(self, instance_id: str) -> list[Tenancy]:
        """The instance of that name; all, if it is empty. Raises Fault MODEL_NOT_FOUND."""
        found = [one for one in self.tenancies if instance_id in ("", one.instance_id)]
        if instance_id and not found:
            raise Fault(
                Reason.MODEL_NOT_FOUND,
                f"Model '{self.spec.key}' has no instance '{instance_id[:200]}'.",
            )
        return found

    def wake(self) -> None:
        """Wake everybody who waits for a change."""
        self.changed.set()
        self.changed = asyncio.Event()
