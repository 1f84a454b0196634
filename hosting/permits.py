"""The permits of one engine process: which run, which may never run (again).

A permit is good for one request. It is spent when that request ends, and worthless once revoked;
both are remembered (bounded) so that a late call is refused rather than run unnoticed. While the
engine drains, no permit is good.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from chassis.errors import Fault, Reason

_REMEMBERED = 20_000

OnChange = Callable[[str, bool, str], None]
"""Told of (permit_id, started, transient_lease_id)."""


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[object]
    transient_lease_id: str
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ended_by: Fault | None = None

    def end(self, why: Fault) -> None:
        """Cancel the work, which then fails with `why`; the first reason given stands."""
        if self.ended_by is None:
            self.ended_by = why
            self.task.cancel()


class PermitLedger:
    """Admits each permit once; tells `on_change` about beginnings and ends."""

    def __init__(self, on_change: OnChange, *, is_open: bool = True) -> None:
        """One that is not open takes nothing before `open` is called."""
        self._on_change = on_change
        self._open = is_open
        self._running: dict[str, _Running] = {}
        self._spent: OrderedDict[str, None] = OrderedDict()
        self._idle = asyncio.Event()
        self._idle.set()
        self._drains = 0

    def open(self) -> None:
        """The engine can serve from now on."""
        self._open = True

    @property
    def running(self) -> Mapping[str, str]:
        """Permits whose work runs now, and the lease for its transient memory ("": none)."""
        return {permit_id: entry.transient_lease_id for permit_id, entry in self._running.items()}

    @asynccontextmanager
    async def use(self, permit_id: str, transient_lease_id: str = "") -> AsyncIterator[None]:
        """Run the block under the permit; the model service keeps the lease while it runs.

        Raises Fault PERMIT_REQUIRED, PERMIT_REVOKED, PERMIT_IN_USE, MODEL_EVICTED, or
        SERVICE_UNAVAILABLE while it is not open. A revocation cancels the block and surfaces as
        PERMIT_REVOKED, a forced drain as MODEL_EVICTED.
        """
        self._check(permit_id)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine always runs in a task
        entry = self._running[permit_id] = _Running(task, transient_lease_id)
        self._idle.clear()
        self._on_change(permit_id, True, transient_lease_id)
        try:
            yield
        except asyncio.CancelledError:
            if entry.ended_by is None:
                raise
            task.uncancel()
            raise entry.ended_by from None
        finally:
            del self._running[permit_id]
            if not self._running:
                self._idle.set()
            self._spend(permit_id)
            entry.over.set()
            self._on_change(permit_id, False, transient_lease_id)

    async def revoke(self, permit_id: str, *, only_if_not_started: bool) -> bool:
        """Make the permit worthless and wait until its work is over.

        Answers True, changing nothing, when its work runs and `only_if_not_started` is set.
        """
        entry = self._running.get(permit_id)
        if entry is None:
            self._spend(permit_id)
            return False
        if only_if_not_started:
            return True
        entry.end(_revoked())
        await entry.over.wait()
        return False

    async def drain(self, within_s: float, *, force: bool) -> int:
        """Take nothing new, and wait until what runs is over: how much still runs after that.

        With `force` what runs for longer than `within_s` is ended. Work is taken again once this
        returns or is cancelled.
        """
        self._drains += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._idle.wait()
            if force:
                for entry in self._running.values():
                    entry.end(_evicted())
                await self._idle.wait()
            return len(self._running)
        finally:
            self._drains -= 1

    async def close(self, within_s: float) -> None:
        """Take nothing any more, and end what runs, if that is done `within_s`."""
        self._drains += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.drain(0, force=True)

    def _check(self, permit_id: str) -> None:
        if not permit_id:
            raise Fault(
                Reason.PERMIT_REQUIRED,
                "An engine runs only what the scheduler admitted: send the permit of a grant in "
                "the metadata 'cohabit-permit-id', or call the model service, which admits for "
                "you.",
            )
        if permit_id in self._running:
            raise Fault(Reason.PERMIT_IN_USE, "This permit's request is already running.")
        if permit_id in self._spent:
            raise _revoked()
        if self._drains:
            raise _evicted()
        if not self._open:
            raise Fault(
                Reason.SERVICE_UNAVAILABLE,
                "The engine has not loaded its model yet; ask the scheduler for another grant.",
                retry_after_s=1.0,
            )

    def _spend(self, permit_id: str) -> None:
        self._spent[permit_id] = None
        if len(self._spent) > _REMEMBERED:
            self._spent.popitem(last=False)


def _revoked() -> Fault:
    return Fault(
        Reason.PERMIT_REVOKED, "The permit of this request has ended; ask again.", retry_after_s=1.0
    )


def _evicted() -> Fault:
    return Fault(
        Reason.MODEL_EVICTED,
        "The model had to leave its device before this request was done; send it again.",
        retry_after_s=1.0,
    )
