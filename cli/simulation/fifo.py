"""The rival: first come, first served over all models, a swap whenever the head's model is away.

One queue for all tiers and keys, and nobody passes its head. The head waits for permits, a place,
its peak's memory and its model; for a model that is away the least recently used idle ones leave,
as many as it takes. Memory, permits, lanes' bounds and the world around are the scheduler's own.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.scheduler.core.settings import Settings
from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    AskTransient,
    Cause,
    Effect,
    Grant,
    InstanceFacts,
    Lane,
    ModelFacts,
    Refuse,
    Request,
    ReturnLease,
    StartLoad,
    StartUnload,
    State,
)

_ASK_AGAIN_MS = 500


@dataclass(slots=True)
class _Model:
    facts: ModelFacts
    running: int = 0
    used_ms: int = -1
    busy_with: str = ""
    """What is under way: a question to the broker, a load, an unload."""

    @property
    def ready(self) -> InstanceFacts | None:
        """An instance with a free place."""
        if self.facts.state is not State.READY or self.busy_with == "unload":
            return None
        instance = self.facts.instances[0]
        return instance if self.running < instance.places else None

    @property
    def idle(self) -> bool:
        """It could leave."""
        return self.facts.state is State.READY and not self.running and not self.busy_with


@dataclass(slots=True)
class _Permit:
    request: Request
    model: str
    cost: int
    lease_id: str


@dataclass(slots=True)
class Fifo:
    """A `Policy` without tiers, fairness, or collation."""

    settings: Settings
    models: dict[str, _Model] = field(default_factory=dict)
    permits: dict[str, _Permit] = field(default_factory=dict)
    in_use: int = 0
    _queue: deque[Request] = field(default_factory=deque)
    _waiting: set[str] = field(default_factory=set)
    _alarms: list[tuple[int, str]] = field(default_factory=list)
    _asked: str = ""
    """The head whose peak is being asked for."""
    _ask_again_ms: int = 0

    # -- requests ----------------------------------------------------------------------------

    def arrive(self, now_ms: int, request: Request) -> list[Effect]:
        """A request asks to run."""
        if len(self._waiting) >= self.settings.queue_limit:
            return [Refuse(request.permit_id, Cause.QUEUE_FULL)]
        self._queue.append(request)
        self._waiting.add(request.permit_id)
        wait_ms = self._lane(request).wait_ms
        heapq.heappush(self._alarms, (now_ms + wait_ms, request.permit_id))
        return self._decide(now_ms)

    def leave(self, now_ms: int, permit_id: str) -> list[Effect]:
        """Its caller is gone."""
        if permit_id in self._waiting:
            self._waiting.discard(permit_id)
            return self._decide(now_ms)
        if (permit := self.permits.get(permit_id)) is not None:
            return [AskEngine(permit_id, permit.model, only_if_not_started=False)]
        return []

    def permit_started(
        self, now_ms: int, permit_id: str, model: str, instance_id: str
    ) -> list[Effect]:
        """Nothing depends on it."""
        del now_ms, permit_id, model, instance_id
        return []

    def permit_runs(self, permit_id: str) -> list[Effect]:
        """Nothing depends on it."""
        del permit_id
        return []

    def permit_over(self, now_ms: int, permit_id: str) -> list[Effect]:
        """Its engine is done with it."""
        if (permit := self.permits.pop(permit_id, None)) is None:
            return []
        model = self.models[permit.model]
        model.running -= 1
        model.used_ms = now_ms
        self.in_use -= permit.cost
        self._ask_again_ms = 0
        back: list[Effect] = [ReturnLease(permit.lease_id)] if permit.lease_id else []
        return back + self._decide(now_ms)

    # -- models and memory -------------------------------------------------------------------

    def snapshot(
        self,
        now_ms: int,
        facts: Iterable[ModelFacts],
        running: Mapping[str, tuple[str, str]],
        known: set[str],
    ) -> list[Effect]:
        """All models there are."""
        del running, known
        self.models = {each.key: _Model(each) for each in facts}
        return self._decide(now_ms)

    def catalogue_complete(self, now_ms: int) -> list[Effect]:
        """There are no others."""
        return self._decide(now_ms)

    def model_changed(self, now_ms: int, facts: ModelFacts) -> list[Effect]:
        """A model is something else now."""
        self.models[facts.key].facts = facts
        return self._decide(now_ms)

    def lease_granted(self, now_ms: int, key: str, lease_id: str) -> list[Effect]:
        """A model has its memory."""
        del now_ms
        self.models[key].busy_with = "load"
        return [StartLoad(key, lease_id)]

    def lease_denied(
        self, now_ms: int, key: str, *, never: bool, detail: str, headroom_mib: int
    ) -> list[Effect]:
        """It has not: the head is refused, or somebody has to leave."""
        model, head = self.models[key], self._head()
        model.busy_with = ""
        if head is None or self._model_of(head) != key:
            return self._decide(now_ms)
        if never:
            return self._refuse(now_ms, head, Cause.NEVER_FITS, detail)
        wanted_mib = model.facts.resident_mib + self._peak_mib(head)
        return self._make_room(now_ms, key, wanted_mib - headroom_mib)

    def transient_granted(
        self, now_ms: int, permit_id: str, lease_id: str, mib: int
    ) -> list[Effect]:
        """The head has the memory for its peak."""
        self._asked = ""
        head = self._head()
        mine = head is not None and head.permit_id == permit_id
        if head is None or not mine or not self.models[self._model_of(head)].ready:
            return [ReturnLease(lease_id), *self._decide(now_ms)]
        return [self._grant(now_ms, head, lease_id, mib), *self._decide(now_ms)]

    def transient_denied(
        self, now_ms: int, permit_id: str, *, never: bool, detail: str, headroom_mib: int
    ) -> list[Effect]:
        """It has not."""
        self._asked = ""
        head = self._head()
        if head is None or head.permit_id != permit_id:
            return self._decide(now_ms)
        if never:
            return self._refuse(now_ms, head, Cause.NEVER_FITS, detail)
        key = self._model_of(head)
        return self._make_room(now_ms, key, self._peak_mib(head) - headroom_mib)

    def load_ended(
        self, now_ms: int, key: str, failure: str | None, retry_after_ms: int = 0
    ) -> list[Effect]:
        """A load is over."""
        del failure, retry_after_ms
        self.models[key].busy_with = ""
        return self._decide(now_ms)

    def unload_ended(self, now_ms: int, key: str) -> list[Effect]:
        """An unload is over."""
        self.models[key].busy_with = ""
        self._ask_again_ms = 0
        return self._decide(now_ms)

    # -- time --------------------------------------------------------------------------------

    @property
    def next_alarm_ms(self) -> int | None:
        """When `tick` should be called next."""
        while self._alarms and self._alarms[0][1] not in self._waiting and self._alarms[0][1]:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed: who waited too long is refused."""
        effects: list[Effect] = []
        while self._alarms and self._alarms[0][0] <= now_ms:
            _, permit_id = heapq.heappop(self._alarms)
            if permit_id in self._waiting:
                self._waiting.discard(permit_id)
                effects.append(Refuse(permit_id, Cause.ADMISSION_TIMEOUT))
        return effects + self._decide(now_ms)

    # -- the decision ------------------------------------------------------------------------

    def _decide(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        while (head := self._head()) is not None:
            effect = self._serve(now_ms, head)
            if effect is None:
                break
            effects.append(effect)
            if not isinstance(effect, Grant):
                break
        return effects

    def _serve(self, now_ms: int, head: Request) -> Effect | None:
        """What the head needs next; None: to wait."""
        model = self.models[self._model_of(head)]
        if model.facts.state is State.COLD:
            if model.busy_with or now_ms < self._ask_again_ms:
                return None
            model.busy_with = "question"
            facts = model.facts
            return AskLease(facts.key, facts.resident_mib, head.tier, self._peak_mib(head))
        cost = self._lane(head).cost
        if not model.ready or self._asked or self.in_use + cost > self.settings.permits:
            return None
        peak_mib = self._peak_mib(head)
        if not peak_mib:
            return self._grant(now_ms, head, "", 0)
        if now_ms < self._ask_again_ms:
            return None
        self._asked = head.permit_id
        least_mib = head.minimum_mib or peak_mib
        return AskTransient(head.permit_id, model.facts.key, peak_mib, least_mib, head.tier)

    def _grant(self, now_ms: int, head: Request, lease_id: str, mib: int) -> Grant:
        model, lane = self.models[self._model_of(head)], self._lane(head)
        instance = model.facts.instances[0]
        self._queue.popleft()
        self._waiting.discard(head.permit_id)
        self.permits[head.permit_id] = _Permit(head, model.facts.key, lane.cost, lease_id)
        self.in_use += lane.cost
        model.running += 1
        model.used_ms = now_ms
        return Grant(
            head.permit_id,
            model.facts.key,
            instance.address,
            instance.instance_id,
            now_ms - head.arrived_ms,
            lane.max_run_ms,
            lease_id,
            mib,
        )

    def _make_room(self, now_ms: int, key: str, short_mib: int) -> list[Effect]:
        """The least recently used idle models leave, or it is asked again later."""
        self._ask_again_ms = now_ms + _ASK_AGAIN_MS
        heapq.heappush(self._alarms, (self._ask_again_ms, ""))
        effects: list[Effect] = []
        for model in sorted(self.models.values(), key=lambda model: model.used_ms):
            if short_mib > 0 and model.idle and model.facts.key != key:
                model.busy_with = "unload"
                short_mib -= model.facts.resident_mib
                drain_ms = self.settings.drain_ms
                effects.append(StartUnload(model.facts.key, drain_ms, force=True, why="fifo"))
        return effects

    def _refuse(self, now_ms: int, head: Request, cause: Cause, detail: str) -> list[Effect]:
        self._waiting.discard(head.permit_id)
        return [Refuse(head.permit_id, cause, detail), *self._decide(now_ms)]

    def _head(self) -> Request | None:
        while self._queue and self._queue[0].permit_id not in self._waiting:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def _model_of(self, request: Request) -> str:
        """The model, or of a family the one that is there, else the smallest that is enough."""
        if request.model in self.models:
            return request.model
        family = [m for m in self.models.values() if m.facts.family == request.model]
        enough = [m for m in family if m.facts.context_tokens >= request.tokens] or family
        enough.sort(key=lambda m: (m.facts.state is not State.READY, m.facts.resident_mib))
        return enough[0].facts.key

    def _peak_mib(self, request: Request) -> int:
        return request.preferred_mib or self.models[self._model_of(request)].facts.peak_mib

    def _lane(self, request: Request) -> Lane:
        return self.settings.lane_of(
            request.lane or self.models[self._model_of(request)].facts.lane
        )
