"""A card with true memory, the engines on it, and a real broker ledger that lends it.

An engine takes its memory up bit by bit while it loads and a request its peak while it runs; what
an engine held lingers for a while after it is gone. Foreign tenants take and give as they please.
The ledger sees what the device shows as free and what holders report, nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from services.broker.core import (
    Ask,
    Budget,
    Denied,
    Entry,
    Floors,
    Full,
    Granted,
    LeaseKind,
    Ledger,
    Tier,
)

DEVICE = "gpu0"
TTL_MS = 30_000
FLOORS = Floors(paid_mib=100, sub_mib=200, free_mib=300, background_mib=500)


@dataclass(eq=False)
class Engine:
    """One engine process."""

    model: str
    instance: str
    lease: str
    wants_mib: int
    held_mib: int = 0
    ready: bool = False
    peaks: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Transient memory in use: permit → (lease, MiB)."""

    @property
    def use_mib(self) -> int:
        return self.held_mib + sum(mib for _, mib in self.peaks.values())


@dataclass
class Card:
    """The device, its broker, and who is on it."""

    total_mib: int = 10_000
    foreign_mib: int = 0
    fading_mib: int = 0
    """Of engines that are gone; the driver has not freed it yet."""
    engines: list[Engine] = field(default_factory=list)
    ledger: Ledger = field(default_factory=lambda: Ledger(1_000))
    journal: list[Entry] = field(default_factory=list)
    spent: set[str] = field(default_factory=set)
    """Leases of requests that are over: until they are returned nobody takes them up again."""
    excess_mib: int = 0
    """By how much foreign tenants have taken what was promised to ours."""
    count: int = 0

    # -- truth -------------------------------------------------------------------------------

    @property
    def ours_mib(self) -> int:
        """In use by us, what fades included."""
        return self.fading_mib + sum(engine.use_mib for engine in self.engines)

    @property
    def free_mib(self) -> int:
        """What the device shows."""
        return max(0, self.total_mib - self.ours_mib - self.foreign_mib)

    def overcommitted_mib(self, now: int) -> int:
        """What would be missing were every promise taken up this instant."""
        used = {engine.lease: engine.held_mib for engine in self.engines}
        used |= {lease: mib for engine in self.engines for lease, mib in engine.peaks.values()}
        live = [x for x in self.ledger.leases(now) if x.lease_id not in self.spent]
        promised = sum(max(0, x.granted_mib - used.get(x.lease_id, 0)) for x in live)
        names = {x.lease_id for x in live}
        # What an engine still takes up after its lease ended is nobody's promise, and comes.
        growing = sum(e.wants_mib - e.held_mib for e in self.engines if e.lease not in names)
        return max(0, self.ours_mib + promised + growing + self.foreign_mib - self.total_mib)

    def engine(self, model: str) -> Engine | None:
        """The engine of a model, if it has one."""
        return next((engine for engine in self.engines if engine.model == model), None)

    def holding(self) -> Iterator[str]:
        """Leases that something holds memory under."""
        for engine in self.engines:
            yield engine.lease
            yield from (lease for lease, _ in engine.peaks.values())

    # -- the broker --------------------------------------------------------------------------

    def ask(
        self,
        now: int,
        kind: LeaseKind,
        tier: int,
        preferred_mib: int,
        minimum_mib: int,
        leave_mib: int,
    ) -> Granted | Denied:
        """The broker's answer."""
        self.count += 1
        lease, budget = f"lease{self.count}", self._budget()
        ask = Ask(
            lease,
            "scheduler",
            DEVICE,
            kind,
            Tier(tier),
            preferred_mib,
            minimum_mib,
            TTL_MS,
            request_id=lease,
            leave_mib=leave_mib,
        )
        answer = self.ledger.acquire(ask, budget, now)
        assert isinstance(answer, Granted | Denied), f"{answer}: the ledger is full of {Full}"
        if isinstance(answer, Granted):
            self.journal.append(answer)
        return answer

    def lives(self, now: int, lease: str) -> bool:
        """It has neither been returned nor run out."""
        return any(known.lease_id == lease for known in self.ledger.leases(now))

    def release(self, now: int, lease: str) -> None:
        """Nobody needs it any more."""
        if entry := self.ledger.release(lease, now):
            self.journal.append(entry)

    def renew(self, now: int) -> None:
        """Every holder is heard of in time, and tells what it uses."""
        for engine in self.engines:
            reports = [(engine.lease, engine.held_mib), *engine.peaks.values()]
            for lease, mib in reports:
                if entry := self.ledger.renew(lease, mib, 0, now):
                    self.journal.append(entry)

    def restart_broker(self, now: int) -> None:
        """It is killed, and comes back with its journal alone."""
        self.ledger = Ledger(1_000)
        for entry in self.journal:
            self.ledger.replay(entry)
        self.ledger.resume(now, 2 * TTL_MS)

    def _budget(self) -> Budget:
        return Budget(self.total_mib, self.free_mib, 0, FLOORS)

    # -- memory ------------------------------------------------------------------------------

    def grow(self, engine: Engine, mib: int) -> None:
        """An engine that loads takes up some more."""
        engine.held_mib = min(engine.wants_mib, engine.held_mib + mib)

    def end(self, engine: Engine) -> None:
        """The process is gone; its memory lingers."""
        self.engines.remove(engine)
        self.fading_mib += engine.use_mib

    def fade(self, mib: int) -> None:
        """The driver frees some of it."""
        self.fading_mib = max(0, self.fading_mib - mib)

    def foreign(self, mib: int) -> None:
        """Foreign tenants take what the device shows as free, whoever it was promised to."""
        self.foreign_mib = max(0, min(mib, self.foreign_mib + self.free_mib))


__all__ = ["DEVICE", "FLOORS", "TTL_MS", "Card", "Denied", "Engine", "Granted", "replace"]
