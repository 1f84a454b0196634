"""What the core wants to know of broker and engines: asked here, the answer told to the core."""

import asyncio
from collections.abc import Callable

from chassis import log
from chassis.backoff import RECONNECT
from chassis.clock import steady_ms
from chassis.errors import Fault
from services.scheduler.clients import Broker, Engines, Granted
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.values import AskEngine, AskLease, AskTransient, Effect
from services.scheduler.told import Told

_WORD_ON_ITS_WAY_S = 0.01


class Questions:
    """Asks, each question in a task of its own."""

    def __init__(
        self,
        core: SchedulerCore,
        broker: Broker,
        told: Told,
        perform: Callable[[list[Effect]], None],
    ) -> None:
        self._core = core
        self._broker = broker
        self._told = told
        self._perform = perform
        self._engines = Engines()

    async def close(self) -> None:
        """Close the channels to engines."""
        await self._engines.close()

    async def engine(self, ask: AskEngine) -> None:
        """Whether a permit's work is over; asked until it is answered."""
        failures = 0
        if not ask.only_if_not_started:
            # Most callers close when their answer has ended: the engine's own word is on its way.
            await asyncio.sleep(_WORD_ON_ITS_WAY_S)
        while ask.permit_id in self._core.permits:
            try:
                runs = await self._engines.revoke(
                    ask.address, ask.permit_id, only_if_not_started=ask.only_if_not_started
                )
            except Fault as fault:
                failures += 1
                log.get().warning("engine does not say", permit=ask.permit_id, reason=fault.reason)
                await asyncio.sleep(RECONNECT.delay_s(failures))
                continue
            if runs:
                self._perform(self._core.permit_runs(ask.permit_id))
            else:
                self._perform(self._core.permit_over(steady_ms(), ask.permit_id))
            return

    async def lease(self, ask: AskLease) -> None:
        """For the memory of a model."""
        holder = self._told.holder_of(ask.model)
        try:
            answer = await self._broker.acquire(holder, ask.resident_mib, ask.tier, ask.leave_mib)
        except Fault as fault:
            log.get().warning("no answer about a lease", model=ask.model, reason=fault.reason.value)
            self._perform(self._core.lease_unanswered(steady_ms(), ask.model))
            return
        if isinstance(answer, Granted):
            self._perform(self._core.lease_granted(steady_ms(), ask.model, answer.lease_id))
            return
        log.get().info("lease denied", model=ask.model, why=answer.detail)
        self._perform(
            self._core.lease_denied(
                steady_ms(), ask.model, answer.never, answer.detail, answer.headroom_mib
            )
        )

    async def transient(self, ask: AskTransient) -> None:
        """For the memory of one request."""
        name, holder = ask.permit_id, self._told.holder_of(ask.model)
        model = self._core.models.get(ask.model)
        beside_mib = model.facts.resident_mib if model is not None else 0
        try:
            answer = await self._broker.acquire_transient(holder, ask, beside_mib)
        except Fault as fault:
            log.get().warning("no answer about a lease", model=ask.model, reason=fault.reason.value)
            self._perform(self._core.transient_unanswered(steady_ms(), name))
            return
        if isinstance(answer, Granted):
            self._perform(
                self._core.transient_granted(steady_ms(), name, answer.lease_id, answer.mib)
            )
            return
        log.get().info("transient lease denied", model=ask.model, why=answer.detail)
        self._perform(
            self._core.transient_denied(
                steady_ms(), name, answer.never, answer.detail, answer.headroom_mib
            )
        )
