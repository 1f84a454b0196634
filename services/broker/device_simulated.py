"""A declared capacity without a card behind it, for running the whole house without one.

The truth is a `SimulatedCard`: simulated engines take memory up there and give it back, and what is
free is what they and the foreign tenants have left, whatever holders report.

Foreign tenants are programs that know nothing of leases. They follow a script, counted from the
broker's start: each takes what is free up to its wish, and goes on trying until it has it all.
They act when the device is read, before it is: nobody can have been promised what they take.

They never take what has been lent and is not in use yet. No broker could keep its word against a
thief that does, and every run with one would show just that. It looks like a load that failed; to
see one, let an engine use more than it was granted.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from chassis import log
from chassis.simulated_card import CardError, SimulatedCard
from services.broker.device import DeviceKind, DeviceReading, ProcessUse

_RETRY_MS = 1000
_OWNER = "foreign/"


@dataclass(frozen=True, slots=True)
class Visit:
    """A foreign tenant's wish for a time; those of one name at one time add up."""

    name: str
    mib: int
    from_ms: int
    """Since the broker's start."""
    until_ms: int | None
    """None: for good."""

    def lasts_at(self, elapsed_ms: int) -> bool:
        """Whether the tenant wants this now."""
        return self.from_ms <= elapsed_ms and (self.until_ms is None or elapsed_ms < self.until_ms)


class SimulatedDevice:
    """The card that this broker has made, and the tenants that it plays."""

    name = "sim0"
    kind = DeviceKind.SIMULATED
    description = "Simulated device"

    def __init__(
        self, card: SimulatedCard, capacity_mib: int, visits: Sequence[Visit], began_ms: int
    ) -> None:
        """Make the card. Raises CardError."""
        card.create(capacity_mib)
        self._card, self._visits, self._began_ms = card, tuple(visits), began_ms
        self._last = DeviceReading(capacity_mib, capacity_mib)

    async def read(self, now_ms: int, promised_mib: int) -> DeviceReading:
        """Let the foreign tenants act, then see what is free."""
        if now_ms < self._last.retry_at_unix_ms:
            return self._last
        total_mib = self._last.total_mib
        try:
            used_mib = await asyncio.to_thread(self._used, now_ms, promised_mib)
        except CardError as error:
            log.get().warning("device unreachable", device=self.name, error=str(error))
            self._last = DeviceReading(total_mib, self._last.free_mib, False, now_ms + _RETRY_MS)
        else:
            self._last = DeviceReading(total_mib, max(0, total_mib - used_mib))
        return self._last

    async def processes(self) -> tuple[ProcessUse, ...]:
        """Everything that is held, by process and name."""
        try:
            held = await asyncio.to_thread(self._card.used_by)
        except CardError:  # the next reading will say so
            return ()
        return tuple(ProcessUse(each.pid, each.mib, each.name) for each in held)

    def _used(self, now_ms: int, promised_mib: int) -> int:
        own = os.getpid()
        held = Counter({use.name: use.mib for use in self._card.used_by() if use.pid == own})
        for name, mib in self._wishes(now_ms - self._began_ms).items():
            if mib < held[name]:
                self._card.allocate(name, mib)
            elif mib > held[name]:
                self._card.take(name, mib, leave_mib=promised_mib)
        return self._card.used_mib()

    def _wishes(self, elapsed_ms: int) -> Counter[str]:
        """What every tenant of the script wants now, by the name it has on the card."""
        wishes = Counter({_OWNER + visit.name: 0 for visit in self._visits})
        for visit in self._visits:
            if visit.lasts_at(elapsed_ms):
                wishes[_OWNER + visit.name] += visit.mib
        return wishes
