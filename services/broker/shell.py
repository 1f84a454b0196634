"""The one task that owns the ledger: it takes calls in order, reads the device, writes the journal.

An answer goes out after its journal entry is written. The device is read inside the same turn as
the decision, so that no renewal comes between a reading and what is concluded from it: memory
taken up and reported in that gap would count nowhere.

Decisions are the core's; words of the wire are the servicer's.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from chassis import log
from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from services.broker import metrics
from services.broker.config import BrokerConfig
from services.broker.core import (
    Ask,
    Budget,
    DenialReason,
    Denied,
    Entry,
    Full,
    Granted,
    Lease,
    LeaseKind,
    Ledger,
    Memory,
    Pressure,
    Tier,
)
from services.broker.device import Device, DeviceKind, DeviceReading, ProcessUse
from services.broker.journal import Journal, JournalError
from services.broker.turns import Turns
from services.broker.watchers import Watchers

_MAX_WAITING = 10_000
_CLOSE_S = 5.0
_PRESSURE_PERIOD_MS = 1000
_MAX_PROCESSES = 64


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller asks for. Empty device: the first. `ttl_ms` 0: the default."""

    holder: str
    device: str
    kind: LeaseKind
    tier: Tier
    preferred_mib: int
    minimum_mib: int
    ttl_ms: int
    request_id: str
    leave_mib: int = 0


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device, read and reckoned."""

    device: Device
    reading: DeviceReading
    budget: Budget
    memory: Memory
    processes: tuple[ProcessUse, ...] = ()
    """The largest users, where that was asked."""


class Shell:
    """Owns the ledger. `start` it, call it from anywhere on the loop, `close` it."""

    def __init__(
        self,
        config: BrokerConfig,
        devices: Sequence[Device],
        journal: Journal,
        *,
        clock: Callable[[], int] | None = None,
        max_waiting: int = _MAX_WAITING,
    ) -> None:
        self._config, self._journal = config, journal
        self._devices = {device.name: device for device in devices}
        self._ledger = Ledger(config.max_leases)
        self._now = clock or steady_ms
        self._turns = Turns(max_waiting)
        self._read: dict[str, DeviceState] = {}
        self._pressure = Pressure(_PRESSURE_PERIOD_MS)
        self.watchers = Watchers()
        """Who wants to be told to shrink."""

    def start(self) -> int:
        """Take up the leases of the journal, begin to answer; how many leases there are.

        Raises JournalError. Blocks: nothing is served yet.
        """
        for entry in self._journal.entries():
            self._ledger.replay(entry)
        now = self._now()
        self._ledger.resume(now, self._ms(self._config.max_lease_ttl_s))
        leases = self._ledger.leases(now)
        try:
            self._journal.compact(leases, now)
        except OSError as error:
            raise JournalError(
                f"The journal cannot be written ({error}); free some space."
            ) from error
        self._turns.start()
        return len(leases)

    async def close(self) -> None:
        """Finish what has been begun, then let go of the journal."""
        await self._turns.close(_CLOSE_S)
        self._journal.close()

    async def acquire(self, wish: Wish) -> Lease | Denied:
        """Grant or deny. Faults: device_not_found, device_unreachable, saturated."""
        device = self._device(wish.device)
        longest = self._ms(self._config.max_lease_ttl_s)
        ask = Ask(
            lease_id=uuid.uuid4().hex,
            holder=wish.holder,
            device=device.name,
            kind=wish.kind,
            tier=wish.tier,
            preferred_mib=wish.preferred_mib,
            minimum_mib=wish.minimum_mib,
            ttl_ms=min(longest, wish.ttl_ms or self._ms(self._config.lease_ttl_s)),
            request_id=wish.request_id,
            leave_mib=wish.leave_mib,
        )

        async def undo(outcome: Lease | Denied) -> None:
            # A lease that an earlier call was granted is that call's, not ours to give back.
            if isinstance(outcome, Lease) and outcome.lease_id == ask.lease_id:
                await self._release(outcome.lease_id)

        return await self._turns.take(lambda: self._acquire(device, ask), undo)

    async def renew(
        self, lease_id: str, materialised_mib: int, ttl_ms: int, shrink_to_mib: int = 0
    ) -> Lease:
        """Extend a lease, and perhaps lower what it grants. Faults: lease_not_found."""
        ttl_ms = min(ttl_ms, self._ms(self._config.max_lease_ttl_s))
        return await self._turns.take(
            lambda: self._renew(lease_id, materialised_mib, ttl_ms, shrink_to_mib)
        )

    async def release(self, lease_id: str) -> None:
        """End a lease, if it has not ended."""
        await self._turns.take(lambda: self._release(lease_id))

    async def leases(self, holder_prefix: str, device: str) -> list[Lease]:
        """Live leases, oldest first."""

        async def work() -> list[Lease]:
            return self._ledger.leases(self._now(), holder_prefix, device)

        return await self._turns.take(work)

    async def states(self) -> list[DeviceState]:
        """Every device as it stands, with those who use it."""

        async def work() -> list[DeviceState]:
            return [await self._state_for_people(device) for device in self._devices.values()]

        return await self._turns.take(work)

    async def look(self) -> None:
        """Read every device anew, for whoever only reads the metrics."""

        async def work() -> None:
            for device in self._devices.values():
                await self._state(device)

        await self._turns.take(work)

    async def _acquire(self, device: Device, ask: Ask) -> Lease | Denied:
        # A repeated call is answered also while the driver is silent.
        if known := self._ledger.repeated(ask.holder, ask.request_id, self._now()):
            return known
        state = await self._state(device)
        if not state.reading.reachable:
            raise self._unreachable(state)
        outcome = self._ledger.acquire(ask, state.budget, self._now())
        match outcome:
            case Granted(lease=lease):
                await self._journal_grant(outcome)
                self._publish()
                return lease
            case Denied(reason=reason):
                metrics.DENIALS.labels(reason.value).inc()
                if reason is DenialReason.NO_HEADROOM:
                    self._press(ask, outcome.headroom_mib)
                return outcome
            case Full(max_leases=most):
                metrics.DENIALS.labels(Reason.SATURATED.value).inc()
                raise Fault(
                    Reason.SATURATED,
                    f"The broker already keeps {most} leases, its bound; try again when some "
                    "have ended, or raise broker.max_leases.",
                    retry_after_s=1.0,
                )
            case Lease():
                return outcome

    def _press(self, ask: Ask, headroom_mib: int) -> None:
        """Ask those who can to make room for a wish that was refused."""
        now = self._now()
        able = [x for x in self._ledger.leases(now, "", ask.device) if self.watchers.want(x.holder)]
        missing_mib = ask.minimum_mib + ask.leave_mib - headroom_mib
        for shrink in self._pressure.ask(able, ask.tier, missing_mib, now):
            self.watchers.tell(shrink)

    async def _renew(
        self, lease_id: str, materialised_mib: int, ttl_ms: int, shrink_to_mib: int
    ) -> Lease:
        entry = self._ledger.renew(
            lease_id, materialised_mib, ttl_ms, self._now(), shrink_to_mib=shrink_to_mib
        )
        if entry is None:
            raise Fault(
                Reason.LEASE_NOT_FOUND,
                f"There is no lease {lease_id[:64]!r}: it has expired, been released or never "
                "been granted; stop using its memory and acquire a new one.",
            )
        lease = self._ledger.get(lease_id)
        self._publish()
        await self._write(entry)
        return lease

    async def _release(self, lease_id: str) -> None:
        if entry := self._ledger.release(lease_id, self._now()):
            self._publish()
            await self._write(entry)

    async def _journal_grant(self, entry: Granted) -> None:
        try:
            await self._write(entry)
        except Fault:
            # What is not in the journal has not been granted.
            self._ledger.release(entry.lease.lease_id, self._now())
            raise

    async def _write(self, entry: Entry) -> None:
        try:
            await asyncio.to_thread(self._journal.append, entry)
        except OSError as error:
            log.get().error("journal not writable", error=str(error))
            raise Fault(
                Reason.SERVICE_UNAVAILABLE,
                f"The broker cannot write its journal ({error.strerror}); free some space in "
                "state_dir and try again.",
                retry_after_s=1.0,
            ) from error
        if self._journal.wants_compaction:
            await self._compact()

    async def _compact(self) -> None:
        now = self._now()
        try:
            await asyncio.to_thread(self._journal.compact, self._ledger.leases(now), now)
        except OSError as error:  # the longer file still holds the truth
            log.get().warning("journal not compacted", error=str(error))

    async def _state(self, device: Device) -> DeviceState:
        now = self._now()
        reading = await device.read(now, self._ledger.promised_mib(device.name, now))
        total = reading.total_mib
        budget = Budget(
            total_mib=total,
            free_mib=reading.free_mib,
            reserve_mib=self._config.reserve_of(total, host=device.kind is DeviceKind.CPU),
            floors=self._config.floors_of(total, card=device.kind is DeviceKind.NVML),
        )
        state = DeviceState(
            device, reading, budget, self._ledger.memory(device.name, budget, self._now())
        )
        self._read[device.name] = state
        metrics.publish(device.name, total, state.memory, reachable=reading.reachable)
        return state

    async def _state_for_people(self, device: Device) -> DeviceState:
        state, processes = await self._state(device), await device.processes()
        largest = sorted(processes, key=lambda process: -process.used_mib)[:_MAX_PROCESSES]
        return replace(state, processes=tuple(largest))

    def _publish(self) -> None:
        for name, state in self._read.items():
            memory = self._ledger.memory(name, state.budget, self._now())
            total_mib = state.budget.total_mib
            metrics.publish(name, total_mib, memory, reachable=state.reading.reachable)

    def _device(self, name: str) -> Device:
        device = self._devices.get(name) if name else next(iter(self._devices.values()))
        if device is None:
            known = ", ".join(self._devices)
            raise Fault(
                Reason.DEVICE_NOT_FOUND,
                f"There is no device {name[:64]!r} here; there is: {known}.",
            )
        return device

    def _unreachable(self, state: DeviceState) -> Fault:
        wait_s = max(0, state.reading.retry_at_unix_ms - self._now()) / 1000
        metrics.DENIALS.labels(Reason.DEVICE_UNREACHABLE.value).inc()
        return Fault(
            Reason.DEVICE_UNREACHABLE,
            f"The driver of {state.device.name} does not answer; it is asked again in "
            f"{wait_s:.1f} s.",
            retry_after_s=wait_s,
        )

    @staticmethod
    def _ms(seconds: float) -> int:
        return round(seconds * 1000)
