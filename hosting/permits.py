"""The permits of one engine process: which run, which may never run (again).

A permit is good for one request. It is spent when that request ends, and worthless once revoked;
both are remembered (bounded) so that a late call is refused rather than run unnoticed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from chassis.errors import Fault, Reason

_REMEMBERED = 20_000


@dataclass(slots=True)
class _Running:
    task: asyncio.Task[object]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    revoked: bool = False


class PermitLedger:
    """Admits each permit once; tells `on_change(permit_id, started)` about beginnings and ends."""

    def __init__(self, on_change: Callable[[str, bool], None]) -> None:
        self._on_change = on_change
        self._running: dict[str, _Running] = {}
        self._spent: OrderedDict[str, None] = OrderedDict()

    @property
    def running(self) -> tuple[str, ...]:
        """Permits whose work runs now."""
        return tuple(self._running)

    @asynccontextmanager
    async def use(self, permit_id: str) -> AsyncIterator[None]:
        """Run the block under the permit.

        Raises Fault PERMIT_REQUIRED, PERMIT_REVOKED or PERMIT_IN_USE. A revocation cancels the
        block and surfaces as PERMIT_REVOKED.
        """
        self._check(permit_id)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine always runs in a task
        entry = self._running[permit_id] = _Running(task)
        self._on_change(permit_id, True)
        try:
            yield
        except asyncio.CancelledError:
            if not entry.revoked:
                raise
            task.uncancel()
            raise _revoked() from None
        finally:
            del self._running[permit_id]
            self._spend(permit_id)
            entry.over.set()
            self._on_change(permit_id, False)

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
        if not entry.revoked:
            entry.revoked = True
            entry.task.cancel()
        await entry.over.wait()
        return False

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

    def _spend(self, permit_id: str) -> None:
        self._spent[permit_id] = None
        if len(self._spent) > _REMEMBERED:
            self._spent.popitem(last=False)


def _revoked() -> Fault:
    return Fault(
        Reason.PERMIT_REVOKED, "The permit of this request has ended; ask again.", retry_after_s=1.0
    )
