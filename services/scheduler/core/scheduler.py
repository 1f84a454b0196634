"""The events of the scheduler's core. Pure: event and now in, effects out as data.

Every public method is one event. It changes the state in place and returns the effects that the
shell has to perform. Each ends in the decision of `decision.py`, where the rules stand.

The life of a permit: granted → (its engine saw it) → stream closed and engine done → free. The
core never guesses: it asks the engine (`AskEngine`) whenever the two do not agree.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.scheduler.core import residency
from services.scheduler.core.alarms import Alarm
from services.scheduler.core.decision import ASK_AGAIN_MS, Decision
from services.scheduler.core.state import Model, Permit
from services.scheduler.core.values import (
    AskEngine,
    Cause,
    Effect,
    Loading,
    ModelFacts,
    Queued,
    Refuse,
    Request,
    ReturnLease,
    StartLoad,
    StartUnload,
    State,
    Tier,
)

_RETRY_AFTER_MS = 1_000


@dataclass(slots=True)
class SchedulerCore(Decision):
    """Every event of the scheduler."""

    # -- requests ----------------------------------------------------------------------------

    def arrive(self, now_ms: int, request: Request) -> list[Effect]:
        """A request asks to run."""
        model = self.models.get(request.model)
        if model is None and self.catalogued:
            return [Refuse(request.permit_id, Cause.MODEL_NOT_FOUND, request.model)]
        if model is not None and (wait_ms := model.cooling_ms(now_ms)):
            return [Refuse(request.permit_id, Cause.MODEL_FAILED, model.facts.failure, wait_ms)]
        if self.room.waiting(request.tier) >= self.queue_limit:
            detail = f"{self.queue_limit}"
            return [Refuse(request.permit_id, Cause.QUEUE_FULL, detail, _RETRY_AFTER_MS)]
        if request.try_acquire and self.room.ahead(request.tier):
            return [Refuse(request.permit_id, Cause.SATURATED, "", _RETRY_AFTER_MS)]
        self.room.add(request)
        if request.load_only:
            self.loads.setdefault(request.model, {})[request.permit_id] = request
        wait_ms = self.lane_for(request).wait_ms
        self.alarms.set(request.arrived_ms + wait_ms, Alarm.WAITED, request.permit_id)
        effects = self.decide(now_ms)
        if request.permit_id in self.room:
            if request.try_acquire:
                self.forget(request)
                return [*effects, Refuse(request.permit_id, Cause.SATURATED, "", _RETRY_AFTER_MS)]
            effects.append(Queued(request.permit_id, self.room.ahead(request.tier) - 1))
        return effects

    def leave(self, now_ms: int, permit_id: str) -> list[Effect]:
        """The caller's stream is closed, whatever it was doing."""
        if (request := self.room.get(permit_id)) is not None:
            self.forget(request)
            return self.decide(now_ms)
        permit = self.permits.get(permit_id)
        if permit is None:
            return []
        permit.stream_closed = True
        return self.settle(now_ms, permit)

    # -- permits -----------------------------------------------------------------------------

    def permit_started(self, now_ms: int, permit_id: str, model: str) -> list[Effect]:
        """An engine took a request in. One we do not know ran before our restart."""
        if permit := self.permits.get(permit_id):
            permit.seen = True
        elif not self.book.is_over(permit_id):
            self._adopt(now_ms, permit_id, model)
        return []

    def permit_over(self, now_ms: int, permit_id: str) -> list[Effect]:
        """An engine says that nothing runs under the permit, nor ever will."""
        permit = self.permits.get(permit_id)
        if permit is None:
            return []
        permit.engine_over = True
        if permit.adopted:
            return self.release(now_ms, permit)
        if not permit.stream_closed and not permit.seen:
            # Only a lapsed grant is asked about while its stream is open.
            lapsed = Refuse(permit_id, Cause.GRANT_LAPSED, "", 0)
            return [lapsed, *self.release(now_ms, permit)]
        return self.settle(now_ms, permit)

    def permit_runs(self, permit_id: str) -> list[Effect]:
        """The engine was asked about an unused grant, and it is in use."""
        if permit := self.permits.get(permit_id):
            permit.seen = True
        return []

    # -- models ------------------------------------------------------------------------------

    def model_changed(self, now_ms: int, facts: ModelFacts) -> list[Effect]:
        """A model service reports a model."""
        model = self.models.setdefault(facts.key, Model(facts))
        before, model.facts, model.reachable = model.facts, facts, True
        if facts.state is not State.COLD:
            model.starting = False
        if facts.state not in (State.READY, State.DRAINING):
            model.leaving, model.leaving_for = False, ""
        effects: list[Effect] = []
        if facts.state is State.READY and before.state is not State.READY:
            model.last_used_ms = now_ms
        if facts.state is State.LOADING:
            effects += [
                Loading(r.permit_id, facts.key, facts.progress) for r in self.room.of(facts.key)
            ]
        if facts.state in (State.COLD, State.FAILED) and before.state is not facts.state:
            self.memory_may_be_back()
        effects += self._refuse_failed(now_ms, model)
        return effects + self.decide(now_ms)

    def snapshot(
        self, now_ms: int, facts: Iterable[ModelFacts], running: Mapping[str, str], known: set[str]
    ) -> list[Effect]:
        """A model service reports everything: its models, and the permits that run (→ model).

        `known` are the keys this service reported before: those it no longer has are removed, and
        permits of ours on its models that it does not list are over, if it had seen them.
        """
        effects: list[Effect] = []
        present = set()
        for item in facts:
            present.add(item.key)
            effects += self.model_changed(now_ms, item)
        for permit_id, model in running.items():
            effects += self.permit_started(now_ms, permit_id, model)
        for permit in list(self.permits.values()):
            if permit.model in present and permit.seen and permit.request.permit_id not in running:
                effects += self.permit_over(now_ms, permit.request.permit_id)
        for key in known - present:
            effects += self.model_removed(now_ms, key)
        return effects

    def model_removed(self, now_ms: int, key: str) -> list[Effect]:
        """A model is not configured any more."""
        if self.models.pop(key, None) is None:
            return []
        effects: list[Effect] = []
        for request in self.room.of(key):
            self.forget(request)
            effects.append(Refuse(request.permit_id, Cause.MODEL_NOT_FOUND, key))
        return effects + self.decide(now_ms)

    def worker_lost(self, keys: Iterable[str]) -> None:
        """The service of these models does not answer: nothing is granted or loaded there."""
        for key in keys:
            if model := self.models.get(key):
                model.reachable = model.starting = model.leaving = False
                model.leaving_for = ""

    def lease_granted(self, now_ms: int, key: str, lease_id: str) -> list[Effect]:
        """The broker granted a model's memory."""
        model = self.models.get(key)
        if model is None or not model.reachable or self.room.first(key) is None:
            if model is not None:
                model.asking = False
            return [ReturnLease(lease_id), *self.decide(now_ms)]
        model.asking, model.starting = False, True
        return [StartLoad(key, lease_id)]

    def lease_denied(self, now_ms: int, key: str, *, never: bool, detail: str) -> list[Effect]:
        """The broker refused a model's memory, for now or for ever."""
        model = self.models.get(key)
        if model is None:
            return []
        model.asking = False
        if never:
            return [
                *self.refuse_all(key, Cause.NEVER_FITS, detail, None),
                *self.decide(now_ms),
            ]
        model.ask_again_ms = now_ms + ASK_AGAIN_MS
        self.alarms.set(model.ask_again_ms, Alarm.LEASE, key)
        if victim := residency.victim(key, self.models, self.room):
            victim.leaving, victim.leaving_for = True, key
            return [StartUnload(victim.facts.key)]
        return []

    def lease_unanswered(self, now_ms: int, key: str) -> None:
        """The broker does not answer. That is no refusal: nobody has to go for it."""
        if model := self.models.get(key):
            model.asking = False
            model.ask_again_ms = now_ms + ASK_AGAIN_MS
            self.alarms.set(model.ask_again_ms, Alarm.LEASE, key)

    def unload_asked(self, key: str, *, force: bool) -> int:
        """Somebody wants the model gone: how many requests stand in the way; 0: it may leave."""
        model = self.models[key]
        if model.running and not force:
            return model.running
        model.leaving = True
        return 0

    def load_ended(
        self, now_ms: int, key: str, failure: str | None, retry_after_ms: int = 0
    ) -> list[Effect]:
        """A load that was started is over. With a `failure`, its waiters are told."""
        model = self.models.get(key)
        if model is None:
            return []
        model.starting = False
        effects: list[Effect] = []
        if failure is not None:
            wait_ms = max(retry_after_ms, _RETRY_AFTER_MS)
            effects += self.refuse_all(key, Cause.MODEL_FAILED, failure, wait_ms)
        elif model.loadable(now_ms):  # nobody's fault, so it is tried again: not in a storm
            model.ask_again_ms = now_ms + ASK_AGAIN_MS
            self.alarms.set(model.ask_again_ms, Alarm.LEASE, key)
        return effects + self.decide(now_ms)

    def unload_ended(self, now_ms: int, key: str) -> list[Effect]:
        """An unload was performed or refused; the model's reports say which."""
        if model := self.models.get(key):
            model.leaving, model.leaving_for = False, ""
        return self.decide(now_ms)

    # -- time --------------------------------------------------------------------------------

    def reconcile(self, now_ms: int) -> list[Effect]:
        """Every engine has reported after our start, or had its time to: granting may begin."""
        self.reconciled = True
        return self.decide(now_ms)

    def catalogue_complete(self, now_ms: int) -> list[Effect]:
        """Every model service has reported: who waits for an unknown model waits in vain."""
        self.catalogued = True
        effects: list[Effect] = []
        for key in self.room.models() - self.models.keys():
            effects += self.refuse_all(key, Cause.MODEL_NOT_FOUND, key, None)
        return effects + self.reconcile(now_ms)

    @property
    def next_alarm_ms(self) -> int | None:
        """When `tick` should be called next."""
        return self.alarms.next_ms

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed: end what waited or ran too long, ask again for what was refused."""
        effects: list[Effect] = []
        for what, name in self.alarms.due(now_ms):
            effects += self._ring(now_ms, what, name)
        return effects + self.decide(now_ms)

    def queue_positions(self) -> list[Effect]:
        """Everyone's place, for the sign of life that waiters get."""
        return [Queued(r.permit_id, i) for i, r in enumerate(self.room.in_order())]

    # -- pieces ------------------------------------------------------------------------------

    def _ring(self, now_ms: int, what: Alarm, name: str) -> list[Effect]:
        if what is Alarm.WAITED:
            if (request := self.room.get(name)) is not None:
                self.forget(request)
            return [Refuse(name, Cause.ADMISSION_TIMEOUT, "", _RETRY_AFTER_MS)]
        if what is Alarm.LEASE:
            return []  # the decision that follows every event asks again
        permit = self.permits[name]
        if what is Alarm.UNUSED:
            unused = AskEngine(name, permit.address, only_if_not_started=True)
            return [] if permit.seen else [unused]
        closing: list[Effect] = []
        if not permit.stream_closed and not permit.adopted:
            closing.append(Refuse(name, Cause.RUN_TOO_LONG, permit.lane))
        permit.stream_closed = True
        return closing + self.settle(now_ms, permit)

    def _adopt(self, now_ms: int, permit_id: str, key: str) -> None:
        model = self.models.get(key)
        lane = self.lane_of(model.facts.lane if model else "")
        request = Request(permit_id, key, Tier.FREE, now_ms, lane.name)
        address = model.facts.address if model else ""
        cost = min(lane.cost, self.permits_total)
        adopted = Permit(request, cost, lane.name, key, address, now_ms, seen=True, adopted=True)
        self.book.hold(adopted, now_ms + lane.max_run_ms)
        if model is not None:
            model.running += 1

    def _refuse_failed(self, now_ms: int, model: Model) -> list[Effect]:
        wait_ms = model.cooling_ms(now_ms)
        if not wait_ms:
            return []
        return self.refuse_all(model.facts.key, Cause.MODEL_FAILED, model.facts.failure, wait_ms)
