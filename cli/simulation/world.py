"""The world around whoever decides: callers, broker, model services, engines, on a virtual clock.

Events go in, effects are performed; what takes time comes back as a later event. The scheduler
and the ledger are the real ones, everything else is simulated and deterministic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.simulation.card import Card, No
from cli.simulation.clock import NEVER_MS, Clock
from cli.simulation.engines import Listener, SimulatedModel
from cli.simulation.policy import Policy
from cli.simulation.record import End, Fate, Record
from cli.simulation.setup import Setup
from cli.simulation.trace import TIERS, Line
from services.broker.core import LeaseKind
from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    AskTransient,
    CancelLoad,
    Effect,
    Grant,
    ModelFacts,
    Refuse,
    Request,
    ReturnLease,
    StartLoad,
    StartUnload,
)

HOP_MS = 2
"""A call from one service to another and its answer."""
_TELL_EVERY = 256


class Stuck(Exception):
    """Requests wait and nothing will ever happen: a bug of whoever decides."""


@dataclass(slots=True, eq=False)
class _Call:
    """A request on its way: its line, its fate, and while it runs where."""

    line: Line
    fate: Fate
    model: str = ""
    instance_id: str = ""
    lease_id: str = ""
    lease_mib: int = 0
    taken_mib: int = 0


@dataclass(slots=True)
class World:
    """One replay."""

    setup: Setup
    policy: Policy
    record: Record = field(default_factory=Record)
    clock: Clock = field(default_factory=Clock)
    card: Card = field(init=False)
    models: dict[str, SimulatedModel] = field(init=False)
    calls: dict[str, _Call] = field(default_factory=dict)
    """Those that have not ended."""
    _perform: dict[type, Callable[[Any], None]] = field(init=False)

    def __post_init__(self) -> None:
        self.card = Card(self.setup.card)
        listener = Listener(self._changed, self._load_ended, self._unload_ended, self._cut_off)
        self.models = {
            key: SimulatedModel(profile, self.clock, self.card, self.record, listener)
            for key, profile in self.setup.profiles.items()
        }
        self._perform = {
            Grant: self._grant,
            Refuse: self._refuse,
            AskEngine: self._ask_engine,
            AskLease: lambda ask: self.clock.after(HOP_MS, self._lease, ask),
            AskTransient: lambda ask: self.clock.after(HOP_MS, self._transient, ask),
            ReturnLease: lambda back: self.card.release(self.clock.now_ms, back.lease_id),
            StartLoad: lambda order: self.clock.after(HOP_MS, self._load, order),
            StartUnload: lambda order: self.clock.after(HOP_MS, self._unload, order),
            CancelLoad: lambda order: self.clock.after(HOP_MS, self._cancel_load, order),
        }

    def replay(self, trace: Sequence[Line], tell: Callable[[int], None] = lambda _: None) -> Record:
        """Run the trace, in order of time, to the end of its last request."""
        for tenant in self.setup.card.tenants:
            self.clock.at(tenant.at_ms, self._tenant, tenant.mib)
        facts = [model.facts() for model in self.models.values()]
        self._do(self.policy.snapshot(0, facts, {}, set()))
        self._do(self.policy.catalogue_complete(0))
        for number, line in enumerate(trace):
            self._run_until(line.at_ms)
            self.clock.now_ms = line.at_ms
            self._arrive(f"r{number}", line)
            if number % _TELL_EVERY == 0:
                tell(number)
        while self.calls:
            self._step()
        tell(len(trace))
        self.record.close(self.clock.now_ms, self.card.out_of_memory)
        return self.record

    # -- time --------------------------------------------------------------------------------

    def _run_until(self, when_ms: int) -> None:
        while min(self.clock.next_ms, self._alarm_ms()) < when_ms:
            self._step()

    def _step(self) -> None:
        alarm_ms = self._alarm_ms()
        if min(alarm_ms, self.clock.next_ms) == NEVER_MS:
            raise Stuck(f"{len(self.calls)} requests wait for ever, e.g. {next(iter(self.calls))}")
        if alarm_ms < self.clock.next_ms:
            self.clock.now_ms = max(alarm_ms, self.clock.now_ms)
            self._do(self.policy.tick(self.clock.now_ms))
        else:
            self.clock.step()

    def _alarm_ms(self) -> int:
        alarm_ms = self.policy.next_alarm_ms
        return NEVER_MS if alarm_ms is None else alarm_ms

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if (perform := self._perform.get(type(effect))) is not None:
                perform(effect)

    # -- callers -----------------------------------------------------------------------------

    def _arrive(self, permit_id: str, line: Line) -> None:
        now = self.clock.now_ms
        fate = Fate(line.model, TIERS[line.tier], line.key, now)
        self.calls[permit_id] = _Call(line, fate)
        self.record.arrived(fate)
        tokens = sum(line.tokens) if line.tokens else 0
        request = Request(permit_id, line.model, fate.tier, now, key=line.key, tokens=tokens)
        if line.patience_s is not None:
            self.clock.after(round(line.patience_s * 1000), self._loses_patience, permit_id)
        self._do(self.policy.arrive(now, request))

    def _loses_patience(self, permit_id: str) -> None:
        call = self.calls.get(permit_id)
        if call is not None and call.fate.granted_ms is None:
            self._end(permit_id, End.GAVE_UP)
            self._do(self.policy.leave(self.clock.now_ms, permit_id))

    def _refuse(self, refuse: Refuse) -> None:
        call = self.calls.get(refuse.permit_id)
        if call is None:
            return
        if call.fate.granted_ms is None:
            self._end(refuse.permit_id, End.REFUSED, refuse.cause.value)
        else:
            call.fate.why = refuse.cause.value  # its engine is asked to stop, which ends it

    def _end(self, permit_id: str, end: End, why: str = "") -> None:
        self.record.ended(self.clock.now_ms, self.calls.pop(permit_id).fate, end, why)

    # -- running -----------------------------------------------------------------------------

    def _grant(self, grant: Grant) -> None:
        call = self.calls[grant.permit_id]
        call.model, call.instance_id = grant.model, grant.instance_id
        call.lease_id, call.lease_mib = grant.lease_id, grant.lease_mib
        now = self.clock.now_ms
        self.record.granted(now, call.fate, grant.model)
        self.record.permits(now, self.policy.in_use)
        self.models[grant.model].began(grant.permit_id, grant.instance_id)
        self.clock.after(HOP_MS, self._start, grant.permit_id)

    def _start(self, permit_id: str) -> None:
        if (call := self.calls.get(permit_id)) is None:
            return
        now, profile = self.clock.now_ms, self.setup.profiles[call.model]
        call.taken_mib = call.lease_mib or profile.peak_mib
        if call.taken_mib:
            self.card.take(LeaseKind.TRANSIENT, call.taken_mib)
            if call.lease_id:
                self.card.report(now, call.lease_id, call.taken_mib)
            self.record.used(now, self.card.use)
        self.clock.after(profile.run_ms(call.line), self._finish, permit_id)
        self._do(self.policy.permit_started(now, permit_id, call.model, call.instance_id))

    def _finish(self, permit_id: str) -> None:
        if permit_id in self.calls:
            self._over(permit_id, End.DONE)

    def _cut_off(self, permit_id: str) -> None:
        why = self.calls[permit_id].fate.why or "model_evicted"
        self._over(permit_id, End.CUT_OFF, why)

    def _over(self, permit_id: str, end: End, why: str = "") -> None:
        """The engine is done with it, and its caller has closed the stream."""
        call, now = self.calls[permit_id], self.clock.now_ms
        self._end(permit_id, end, why)
        if call.taken_mib:
            self.card.give(LeaseKind.TRANSIENT, call.taken_mib)
            self.record.used(now, self.card.use)
        self.models[call.model].ended(permit_id)
        self._do(self.policy.permit_over(now, permit_id))
        self._do(self.policy.leave(now, permit_id))
        self.record.permits(now, self.policy.in_use)

    def _ask_engine(self, ask: AskEngine) -> None:
        self.clock.after(HOP_MS, self._revoke, ask)

    def _revoke(self, ask: AskEngine) -> None:
        if ask.permit_id not in self.calls:
            self._do(self.policy.permit_over(self.clock.now_ms, ask.permit_id))
        elif ask.only_if_not_started:
            self._do(self.policy.permit_runs(ask.permit_id))
        else:
            self._cut_off(ask.permit_id)

    # -- memory and models -------------------------------------------------------------------

    def _lease(self, ask: AskLease) -> None:
        now, mib = self.clock.now_ms, ask.resident_mib
        answer = self.card.lease(
            now,
            LeaseKind.RESIDENT,
            ask.tier,
            preferred_mib=mib,
            minimum_mib=mib,
            leave_mib=ask.leave_mib,
        )
        if isinstance(answer, No):
            denied = self.policy.lease_denied(
                now,
                ask.model,
                never=answer.never,
                detail=self._too_big(ask.model, mib),
                headroom_mib=answer.headroom_mib,
            )
            self._do(denied)
        else:
            self._do(self.policy.lease_granted(now, ask.model, answer[0]))

    def _transient(self, ask: AskTransient) -> None:
        now = self.clock.now_ms
        answer = self.card.lease(
            now,
            LeaseKind.TRANSIENT,
            ask.tier,
            preferred_mib=ask.preferred_mib,
            minimum_mib=ask.minimum_mib,
            leave_mib=ask.leave_mib,
        )
        if isinstance(answer, No):
            denied = self.policy.transient_denied(
                now,
                ask.permit_id,
                never=answer.never,
                detail=self._too_big(ask.model, ask.minimum_mib),
                headroom_mib=answer.headroom_mib,
            )
            self._do(denied)
        else:
            self._do(self.policy.transient_granted(now, ask.permit_id, *answer))

    def _too_big(self, model: str, mib: int) -> str:
        return f"{model} wants {mib} MiB of {self.setup.card.total_mib} MiB"

    def _load(self, order: StartLoad) -> None:
        self.models[order.model].load(order.lease_id)

    def _unload(self, order: StartUnload) -> None:
        self.models[order.model].unload(order)

    def _cancel_load(self, order: CancelLoad) -> None:
        # As the scheduler's shell has it: the service stops the engine, and with it the load.
        self.models[order.model].unload(StartUnload(order.model, 0, True, order.why))

    def _changed(self, facts: ModelFacts) -> None:
        self._do(self.policy.model_changed(self.clock.now_ms, facts))

    def _load_ended(self, key: str) -> None:
        self._do(self.policy.load_ended(self.clock.now_ms, key, None))

    def _unload_ended(self, key: str) -> None:
        self._do(self.policy.unload_ended(self.clock.now_ms, key))

    def _tenant(self, mib: int) -> None:
        self.card.foreign(self.clock.now_ms, mib)
        self.record.used(self.clock.now_ms, self.card.use)
