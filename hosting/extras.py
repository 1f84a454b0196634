"""The leases for memory that an instance can do without, e.g. for a draft model.

The service asks for them itself, before its engine starts, and the engine hears which were granted
(docs/adr/0015-draft-model.md). They live as long as the process. Losing one ends nothing: the
memory is in use, so it is asked for again.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from chassis import log
from chassis.errors import Fault
from cohabit.broker.v1 import broker_pb2
from hosting.leases import RETRY_S, LeaseBook
from hosting.values import Extra


@dataclass(slots=True)
class Asked:
    """One of them, and what became of it."""

    extra: Extra
    lease: broker_pb2.Lease | None = None
    why: str = ""
    """Why there is no lease."""
    renew: asyncio.Event = field(default_factory=asyncio.Event)
    keeper: asyncio.Task[None] | None = None


class Extras:
    """The optional memory of one instance of model `key`.

    `in_use_mib` says what of a lease of that size is in use.
    """

    def __init__(
        self,
        book: LeaseBook,
        key: str,
        wanted: Sequence[Extra],
        in_use_mib: Callable[[int], int],
    ) -> None:
        self._book, self._key, self._in_use_mib = book, key, in_use_mib
        self._wanted = wanted
        self._asking: asyncio.Task[None] | None = None
        self.asked: list[Asked] = []
        """In the order of their wanting; empty before `ask`."""

    @property
    def granted(self) -> tuple[str, ...]:
        """The names of those that are there."""
        return tuple(one.extra.name for one in self.asked if one.lease is not None)

    @property
    def granted_mib(self) -> int:
        """Of all that are there."""
        return sum(one.lease.granted_mib for one in self.asked if one.lease is not None)

    @property
    def in_use_mib(self) -> int:
        """What of that is in use."""
        leases = [one.lease for one in self.asked if one.lease is not None]
        return sum(self._in_use_mib(lease.granted_mib) for lease in leases)

    @property
    def lease_ids(self) -> set[str]:
        """The leases that are kept now."""
        return {one.lease.lease_id for one in self.asked if one.lease is not None}

    async def ask(self, device: str, leave_mib: int) -> None:
        """Ask for each once; returns when that is answered, or the broker takes too long."""
        if self._wanted:
            self._asking = asyncio.create_task(self._ask_all(device, leave_mib))
            # Shielded: a lease that is being granted must come to our hands to be released.
            await asyncio.shield(self._asking)

    def renew(self) -> None:
        """Tell the broker at once what is in use."""
        for one in self.asked:
            one.renew.set()

    async def close(self) -> None:
        """Release all."""
        if self._asking is not None:
            await asyncio.wait([self._asking])
        keepers = [one.keeper for one in self.asked if one.keeper is not None]
        for keeper in keepers:
            keeper.cancel()
        if keepers:
            await asyncio.wait(keepers)
        await asyncio.gather(*map(self._book.release, self.lease_ids))

    async def _ask_all(self, device: str, leave_mib: int) -> None:
        for extra in self._wanted:
            asked = await self._ask(extra, device, leave_mib)
            self.asked.append(asked)
            if asked.lease is not None:
                asked.keeper = asyncio.create_task(self._keep(asked, asked.lease))
            else:
                name = extra.name
                log.get().warning("does without", model=self._key, extra=name, why=asked.why)

    async def _ask(self, extra: Extra, device: str, leave_mib: int) -> Asked:
        try:
            answer = await self._book.ask(self._key, extra, device, leave_mib)
        except Fault as fault:
            return Asked(extra, why=fault.message)
        if answer.HasField("lease"):
            return Asked(extra, answer.lease)
        return Asked(extra, why=answer.denial.message)

    async def _keep(self, one: Asked, lease: broker_pb2.Lease) -> None:
        def regained(anew: broker_pb2.Lease) -> None:
            nonlocal lease
            lease = one.lease = anew

        while True:
            await self._book.keep(
                lease, lambda: self._in_use_mib(lease.granted_mib), regained, one.renew
            )
            log.get().warning("lease lost", model=self._key, extra=one.extra.name)
            await asyncio.sleep(RETRY_S)
