"""The shell around the scheduler's core: feeds it events, performs its effects.

Everything here runs on one event loop, and the core is only touched between two awaits: no lock
is needed, and a request that can be granted is granted before `admit` returns.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from chassis import log
from chassis.backoff import RECONNECT
from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2
from services.scheduler import metrics
from services.scheduler.clients import (
    Broker,
    Changed,
    Configured,
    Everything,
    PermitMoved,
    Removed,
    Report,
    Worker,
    facts_of,
)
from services.scheduler.core.plan import Plan
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.sets import Rules
from services.scheduler.core.settings import ModelRules
from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    AskTransient,
    CancelLoad,
    Departure,
    Effect,
    Grant,
    HoldChanged,
    Loading,
    Queued,
    Refuse,
    Request,
    ReturnLease,
    StartLoad,
    StartUnload,
    Tier,
)
from services.scheduler.moves import Moves
from services.scheduler.questions import Questions
from services.scheduler.told import Told

SCHEDULER = "scheduler"
_SIGN_OF_LIFE_S = 5.0
_MAILBOX = 64
_HOLDS = 64
_NEVER_MS = 1 << 62

Notice = Queued | Loading | Grant | Refuse
Outside = AskEngine | AskLease | AskTransient | ReturnLease | StartLoad | CancelLoad | StartUnload
HoldKey = tuple[str, str]
"""Lane and holder."""


@dataclass(slots=True)
class _Asking:
    """A request whose stream is open."""

    request: Request
    mailbox: asyncio.Queue[Notice]
    granted: bool = False
    answered: bool = False

    def count(self, core: SchedulerCore, notice: Notice) -> None:
        """Tell Prometheus what has come of it."""
        if isinstance(notice, Grant):
            metrics.granted(core, notice)
            self.granted = self.answered = True
        elif isinstance(notice, Refuse):
            metrics.refused(self.request, notice, was_granted=self.granted)
            self.answered = True


class SchedulerShell:
    """Owns the core, the clients and everybody who waits."""

    def __init__(self, core: SchedulerCore, broker: Broker, workers: Iterable[Worker]) -> None:
        self.core = core
        self._broker = broker
        self.told = Told(workers)
        self._questions = Questions(core, broker, self.told, self._perform)
        self._moves = Moves(broker, self.told.worker_of, self._spawn)
        self._waiters: dict[str, _Asking] = {}
        self._holders: dict[HoldKey, set[asyncio.Queue[HoldChanged]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Event()
        """Set at the next change of anything, which puts a fresh one in its place."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = _NEVER_MS
        self._unfollow: Callable[[], None] = lambda: None
        self._reported: set[str] = set()
        self.lost: set[str] = set(self.told.workers)
        self.ready = asyncio.Event()
        """Every model service has reported."""

    def start(self, reconcile_s: float) -> None:
        """Begin to watch the model services; grant nothing before they have reported."""
        for worker in self.told.workers.values():
            self._spawn(self._watch(worker))
        self._spawn(self._reconcile_after(reconcile_s))
        self._spawn(self._show_life())
        self._unfollow = metrics.follow(self.core)

    async def close(self) -> None:
        """Stop watching and close every channel."""
        self._unfollow()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._broker.close()
        await self._questions.close()
        for worker in self.told.workers.values():
            await worker.close()

    # -- what servicers call -----------------------------------------------------------------

    @contextmanager
    def admit(self, request: Request) -> Iterator[asyncio.Queue[Notice]]:
        """Queue a request; its notices arrive in the mailbox until the block ends."""
        mailbox: asyncio.Queue[Notice] = asyncio.Queue(_MAILBOX)
        asking = self._waiters[request.permit_id] = _Asking(request, mailbox)
        try:
            self._perform(self.core.arrive(steady_ms(), request))
            yield mailbox
        finally:
            del self._waiters[request.permit_id]
            if not asking.answered:
                metrics.left(request)
            self._perform(self.core.leave(steady_ms(), request.permit_id))

    def models(self) -> list[models_pb2.Model]:
        """The models of every service that answers, ordered by key."""
        return self.told.models(self.lost)

    async def unload(self, key: str, drain_ms: int, *, force: bool) -> None:
        """Unload a model because somebody says so. Raises Fault."""
        worker = self.told.worker_of(key)
        if worker is None:
            raise Fault(Reason.MODEL_NOT_FOUND, f"There is no model '{key}'.")
        if running := self.core.unload_asked(key, force=force):
            raise Fault(
                Reason.MODEL_BUSY,
                f"Model '{key}' is running {running} request(s); wait, or use force.",
                retry_after_s=1.0,
            )
        metrics.departed(Departure.BY_HAND)
        try:
            await self._moves.stop_load(key)
            await worker.unload(key, drain_ms, force=force)
        finally:
            self._perform(self.core.unload_ended(steady_ms(), key))

    @contextmanager
    def hold(self, lane: str, holder: str, hold_ms: int) -> Iterator[asyncio.Queue[HoldChanged]]:
        """Hold a lane until it expires or is released; what becomes of it arrives in the mailbox.

        Another hold of the same holder extends it. It ends when the last of its streams is closed.
        Raises Fault.
        """
        key = (lane, holder)
        if key not in self._holders and len(self._holders) >= _HOLDS:
            busy = f"{_HOLDS} holds stand already; release one."
            raise Fault(Reason.SATURATED, busy, retry_after_s=1.0)
        mailbox: asyncio.Queue[HoldChanged] = asyncio.Queue(_MAILBOX)
        self._holders.setdefault(key, set()).add(mailbox)
        try:
            self._perform(self.core.hold(steady_ms(), lane, holder, hold_ms))
            yield mailbox
        finally:
            streams = self._holders.get(key, set())
            streams.discard(mailbox)
            if not streams:
                self._holders.pop(key, None)
                self.release_hold(lane, holder)

    def release_hold(self, lane: str, holder: str) -> None:
        """Open a lane that the holder held, if it did."""
        self._perform(self.core.release_hold(steady_ms(), lane, holder))

    def rules_changed(self, rules: ModelRules, sets: Rules | None) -> None:
        """Other rules apply about which models live on the device."""
        self._perform(self.core.rules_changed(steady_ms(), rules, sets))

    def note_configuration(self, problem: str, restart_keys: Iterable[str]) -> None:
        """How the scheduler itself stands to the configuration's files."""
        own = models_pb2.Configuration(problem=problem, restart_keys=restart_keys)
        self.told.configurations[SCHEDULER] = own
        self._perform([])

    async def plan(self, key: str, tier: Tier) -> Plan:
        """What loading a model would make leave. Raises Fault."""
        model = self.core.models.get(key)
        if model is None:
            raise Fault(Reason.MODEL_NOT_FOUND, f"There is no model '{key}'.")
        headroom_mib = await self._broker.headroom_mib(tier)
        return self.core.plan(steady_ms(), key, tier, headroom_mib)

    # -- effects -----------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Queued | Loading | Grant | Refuse):
                self._notify(effect)
            elif isinstance(effect, HoldChanged):
                self._tell_holders(effect)
            else:
                self._spawn(self._work_for(effect))
        self.changed.set()
        self.changed = asyncio.Event()
        self._set_alarm()

    def _work_for(self, effect: Outside) -> Coroutine[Any, Any, None]:  # noqa: PLR0911
        match effect:
            case AskEngine():
                return self._questions.engine(effect)
            case AskLease():
                return self._questions.lease(effect)
            case AskTransient():
                return self._questions.transient(effect)
            case ReturnLease():
                return self._moves.return_lease(effect.lease_id)
            case StartLoad():
                return self._load(effect)
            case CancelLoad():
                return self._cancel_load(effect)
            case StartUnload():
                return self._unload(effect)

    def _tell_holders(self, change: HoldChanged) -> None:
        for mailbox in self._holders.get((change.lane, change.holder), ()):
            if mailbox.full():
                mailbox.get_nowait()  # the newest says all
            mailbox.put_nowait(change)

    def _notify(self, notice: Notice) -> None:
        asking = self._waiters.get(notice.permit_id)
        if asking is None:
            return
        asking.count(self.core, notice)
        mailbox = asking.mailbox
        if mailbox.full() and isinstance(notice, Queued | Loading):
            return  # news only; a reader this slow will get the next
        if mailbox.full():
            mailbox.get_nowait()
        mailbox.put_nowait(notice)

    async def _load(self, start: StartLoad) -> None:
        failed = await self._moves.load(start)
        why, retry_ms = (failed.why, failed.retry_after_ms) if failed is not None else (None, 0)
        self._perform(self.core.load_ended(steady_ms(), start.model, why, retry_ms))

    async def _cancel_load(self, given_up: CancelLoad) -> None:
        metrics.departed(Departure.LOAD_GIVEN_UP)
        await self._moves.cancel(given_up)
        self._perform(self.core.unload_ended(steady_ms(), given_up.model))

    async def _unload(self, start: StartUnload) -> None:
        metrics.departed(start.cause)
        await self._moves.unload(start)
        self._perform(self.core.unload_ended(steady_ms(), start.model))

    # -- events ------------------------------------------------------------------------------

    async def _watch(self, worker: Worker) -> None:
        failures = 0
        while True:
            reports = worker.watch()
            try:
                async for report in reports:
                    failures = 0
                    self._take(worker.name, report)
            except Fault as fault:
                log.get().info("worker lost", worker=worker.name, reason=fault.reason.value)
            self.lost.add(worker.name)
            self._perform(self.core.worker_lost(steady_ms(), self.told.of(worker.name)))
            failures += 1
            await asyncio.sleep(RECONNECT.delay_s(failures))

    def _take(self, worker: str, told: Report) -> None:
        now, known = steady_ms(), set(self.told.of(worker))
        report = self.told.own(worker, told)
        if report is None:
            return
        self.told.take(worker, report)
        match report:
            case Everything():
                facts = [facts_of(model) for model in report.models]
                self._perform(self.core.snapshot(now, facts, report.running, known))
                self.lost.discard(worker)
                self._has_reported(worker)
            case Changed():
                self._perform(self.core.model_changed(now, facts_of(report.model)))
            case Removed():
                self._perform(self.core.model_removed(now, report.key))
            case Configured():
                self._perform([])
            case PermitMoved(permit_id, model, instance_id, True):
                self._perform(self.core.permit_started(now, permit_id, model, instance_id))
            case PermitMoved(permit_id):
                self._perform(self.core.permit_over(now, permit_id))
        if isinstance(report, Everything | Removed):
            self._inherit()

    def _inherit(self) -> None:
        """A model that has moved to another service is known there now."""
        for worker, model in self.told.heirs():
            if worker not in self.lost:
                self._take(worker, Changed(model))

    def _has_reported(self, worker: str) -> None:
        self._reported.add(worker)
        if not self.core.catalogued and self._reported >= set(self.told.workers):
            self._perform(self.core.catalogue_complete(steady_ms()))
            self.ready.set()

    async def _reconcile_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not self.core.reconciled:
            self._perform(self.core.reconcile(steady_ms()))

    async def _show_life(self) -> None:
        while True:
            await asyncio.sleep(_SIGN_OF_LIFE_S)
            self._perform(self.core.queue_positions())

    def _set_alarm(self) -> None:
        due = self.core.next_alarm_ms
        if due is None or due >= self._alarm_ms:
            return  # ringing too early does no harm, and most alarms are set for later
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = due
        delay_s = max(0, due - steady_ms()) / 1000
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._alarm, self._alarm_ms = None, _NEVER_MS
        self._perform(self.core.tick(steady_ms()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        # A scheduler that has lost a part of itself is worse than one that starts anew.
        log.get().error("bug", exc_info=task.exception())
        os._exit(70)
