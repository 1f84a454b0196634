"""Models moved in and out: loads and unloads at their services, and the leases that go with them.

Performs what the core has decided; what came of it, the shell tells the core.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from chassis import log
from chassis.backoff import RECONNECT
from chassis.errors import Fault, Reason
from services.scheduler.clients import Broker, Worker
from services.scheduler.core.values import CancelLoad, StartLoad, StartUnload

_NOBODYS_FAULT = (
    # A service that went away takes no blame: its waiters wait for it to come back. Nor does a
    # model whose file has just changed, and with it the lease that it needs; nor one whose load
    # was given up.
    Reason.SERVICE_UNAVAILABLE,
    Reason.LEASE_REQUIRED,
    Reason.MODEL_BUSY,
)
_REFUSED_S = 0.5
"""How long an unload that was refused is not asked for again."""
_RETURNS = 60
"""How often a lease is tried to be returned: about once a second."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a load has failed, and when it may be tried again."""

    why: str
    retry_after_ms: int


@dataclass(frozen=True, slots=True)
class _Load:
    call: asyncio.Future[None]
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Moves:
    """Loads and unloads."""

    def __init__(
        self,
        broker: Broker,
        worker_of: Callable[[str], Worker | None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._broker = broker
        self._worker_of = worker_of
        self._spawn = spawn
        self._loads: dict[str, _Load] = {}

    async def load(self, start: StartLoad) -> Failure | None:
        """Returns when the model is READY, or when nothing is left of its load, with the reason if
        that is its fault."""
        worker = self._worker_of(start.model)
        if worker is None:
            await self.return_lease(start.lease_id)
            return None
        log.get().info("loading", model=start.model)
        call = asyncio.ensure_future(worker.load(start.model, start.lease_id))
        load = self._loads[start.model] = _Load(call)
        try:
            await asyncio.wait([call])
            if call.cancelled():
                await self._clear_away(worker, start)
                return None
            call.result()
        except Fault as fault:
            await self.return_lease(start.lease_id)
            if fault.reason in _NOBODYS_FAULT:
                return None
            return Failure(fault.message, round((fault.retry_after_s or 1.0) * 1000))
        finally:
            call.cancel()
            if self._loads.get(start.model) is load:
                del self._loads[start.model]
            load.over.set()
        return None

    async def cancel(self, given_up: CancelLoad) -> None:
        """Give a load up; returns when nothing is left of it.

        Its call goes first: an unload could come to the service before the load does, find nothing
        to unload, and leave a model loading that nobody expects any more.
        """
        log.get().info("load given up", model=given_up.model, why=given_up.why)
        if not await self.stop_load(given_up.model):  # it has just ended
            await self.unload(StartUnload(given_up.model, 0, True, given_up.why))

    async def stop_load(self, model: str) -> bool:
        """Give up the load of a model, if there is one; whether there was."""
        load = self._loads.get(model)
        if load is None or not load.call.cancel():
            return False
        await load.over.wait()
        return True

    async def unload(self, start: StartUnload) -> None:
        """Returns when the model's memory is back, or it was refused."""
        log.get().info("unloading", model=start.model, why=start.why)
        worker = self._worker_of(start.model)
        if worker is not None:
            await self._unload(worker, start.model, start.drain_ms, force=start.force)

    async def return_lease(self, lease_id: str) -> None:
        """Give a lease back; a broker that is away is told when it has come back."""
        try:
            await self._broker.release(lease_id)
        except Fault as fault:
            log.get().warning("lease not returned yet", lease=lease_id, reason=fault.reason.value)
            self._spawn(self._return_later(lease_id))

    async def _clear_away(self, worker: Worker, start: StartLoad) -> None:
        """The lease is free when the engine, if there was one, is gone."""
        await self._unload(worker, start.model, 0, force=True)
        await self.return_lease(start.lease_id)

    async def _unload(self, worker: Worker, model: str, drain_ms: int, *, force: bool) -> None:
        try:
            await worker.unload(model, drain_ms, force=force)
        except Fault as fault:
            log.get().warning("unload failed", model=model, reason=fault.reason.value)
            # Whoever needs the memory would ask again at once, as fast as a dead service refuses.
            await asyncio.sleep(_REFUSED_S)

    async def _return_later(self, lease_id: str) -> None:
        """Until the broker has heard it, or has been away for so long that the TTL ends it."""
        for failures in range(1, _RETURNS + 1):
            await asyncio.sleep(RECONNECT.delay_s(failures))
            with suppress(Fault):
                await self._broker.release(lease_id)
                return
