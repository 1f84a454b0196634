"""The leases for what running requests add to an instance's memory.

The scheduler obtains them, the engine names them when the work begins. From then on they are ours:
renewed with what of them is in use, and released when the work is over, or the engine. Losing one
ends no work: the memory is in use, so it is asked for again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from chassis import log
from chassis.errors import Fault
from cohabit.broker.v1 import broker_pb2
from hosting.leases import RELEASE_S, RETRY_S, LeaseBook


@dataclass(slots=True)
class _Held:
    lease_id: str
    granted_mib: int = 0
    """0 until the broker has told."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    renew: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Transients:
    """The transient leases of one instance of model `key`, one a running permit at most.

    `used_mib` says what all running requests use together.
    """

    def __init__(self, book: LeaseBook, key: str, used_mib: Callable[[], int]) -> None:
        self._book = book
        self._key = key
        self._used_mib = used_mib
        self._held: dict[str, _Held] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def lease_ids(self) -> set[str]:
        """The leases that are kept now."""
        return {held.lease_id for held in self._held.values()}

    def begin(self, permit_id: str, lease_id: str) -> None:
        """Keep the lease of work that has begun; may be said again."""
        if not lease_id or permit_id in self._held or lease_id in self.lease_ids:
            return
        held = self._held[permit_id] = _Held(lease_id)
        held.task = asyncio.create_task(self._live(held))

    def end(self, permit_id: str) -> None:
        """Release the lease of work that is over, if there is one."""
        held = self._held.pop(permit_id, None)
        if held is not None and held.task is not None:
            self._leaving.add(held.task)
            held.task.add_done_callback(self._leaving.discard)
            held.over.set()

    def renew(self) -> None:
        """Tell the broker at once what is in use."""
        for held in self._held.values():
            held.renew.set()

    async def close(self) -> None:
        """Release all; returns when that is done, or the broker takes too long over it."""
        for permit_id in tuple(self._held):
            self.end(permit_id)
        if self._leaving:
            await asyncio.wait(tuple(self._leaving), timeout=RELEASE_S)

    async def _live(self, held: _Held) -> None:
        lease = await self._found(held)
        if lease is None:
            log.get().warning("transient lease not adopted", model=self._key, lease=held.lease_id)
            return
        held.granted_mib = lease.granted_mib
        keeping = asyncio.create_task(self._keep(held, lease))
        await held.over.wait()
        keeping.cancel()
        await asyncio.wait([keeping])
        await self._book.release(held.lease_id)

    async def _found(self, held: _Held) -> broker_pb2.Lease | None:
        """Asks until the broker answers: what is not a lease of this model is not ours to keep."""
        while True:
            try:
                return await self._book.find(self._key, held.lease_id)
            except Fault as fault:
                log.get().debug("broker not asked yet", reason=fault.reason.value)
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await held.over.wait()
                    return None

    async def _keep(self, held: _Held, lease: broker_pb2.Lease) -> None:
        def regained(anew: broker_pb2.Lease) -> None:
            nonlocal lease
            lease, held.lease_id = anew, anew.lease_id

        while True:
            await self._book.keep(lease, lambda: self._share_mib(held), regained, held.renew)
            log.get().warning("transient lease lost", model=self._key, lease=held.lease_id)
            await asyncio.sleep(RETRY_S)

    def _share_mib(self, held: _Held) -> int:
        """What of the lease is in use: by its size, as the engine tells one figure for all."""
        granted_mib = sum(other.granted_mib for other in self._held.values())
        share_mib = self._used_mib() * held.granted_mib // max(1, granted_mib)
        return min(held.granted_mib, share_mib)
