"""The same work for the scheduler's core and for two queues that know less. No wire, no clock.

A pair is one who asks and one who is done, with whatever the queue decides in between.

- `CoreLoad`: `SchedulerCore`, every event of a request's life: arrive, started, over, leave, and
  the alarms when they are due. A virtual millisecond passes with each pair.
- `HeapLoad`: one heap in the order of tier and arrival, and a count of permits; the released hands
  to the front. The least that any queue of Python must do: no models, no keys, no deadlines.
- `BroadcastLoad`: one condition for all. A release wakes everybody, and each looks whether it is at
  the front. Only the looking is measured, one comparison each: what waking costs is left out, and
  so is that in its usual form each scans the whole queue to find the front.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bench.scheduler.script import MODELS, SLOTS, Case, Line, crowd, newcomers
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.settings import Fairness, Settings
from services.scheduler.core.values import (
    Effect,
    Grant,
    InstanceFacts,
    Lane,
    ModelFacts,
    Request,
    State,
)

CORE = "core"
_HOUR_MS = 3_600_000
_PLENTY = 1_000_000


class Load(Protocol):
    """Something that pairs can be asked of."""

    def pairs(self, count: int) -> None:
        """Let so many ask and so many be done. Raises RuntimeError when a promise is broken."""


def settings(slots: int = SLOTS) -> Settings:
    """As shipped, with room for the crowd."""
    lanes = {model: Lane(model, cost, _HOUR_MS, _HOUR_MS) for model, cost in MODELS.items()}
    fairness = Fairness(pending_per_key=_PLENTY, pending_per_model=_PLENTY)
    return Settings(slots, lanes.__getitem__, queue_limit=_PLENTY, fairness=fairness)


def ready_models() -> list[ModelFacts]:
    """All resident, with a place for every permit."""
    instances = (InstanceFacts("engine-1", State.READY, "unix:/engine", places=SLOTS),)
    return [ModelFacts(key, key, State.READY, 100, instances=instances) for key in MODELS]


class CoreLoad:
    """The scheduler's core."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._core = SchedulerCore(settings())
        self._core.snapshot(0, ready_models(), {}, set())
        self._core.catalogue_complete(0)
        self._now_ms = self._number = 0
        self._running: deque[str] = deque()
        self._new = newcomers(case)
        for line in crowd(case):
            self._arrive(line)

    def pairs(self, count: int) -> None:
        """See `Load`."""
        core, running, new = self._core, self._running, self._new
        for _ in range(count):
            self._now_ms += 1
            self._arrive(next(new))
            done = running.popleft()
            self._take(core.permit_over(self._now_ms, done))
            self._take(core.leave(self._now_ms, done))
            due_ms = core.next_alarm_ms
            if due_ms is not None and due_ms <= self._now_ms:
                self._take(core.tick(self._now_ms))
        if core.in_use > SLOTS or abs(len(core.room) - self._case.waiting) > SLOTS:
            raise RuntimeError(f"{core.in_use} of {SLOTS} in use, {len(core.room)} waiting")

    def _arrive(self, line: Line) -> None:
        self._number += 1
        now_ms = self._now_ms
        request = Request(f"permit-{self._number}", line.model, line.tier, now_ms, key=line.key)
        self._take(self._core.arrive(now_ms, request))

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if type(effect) is Grant:
                name = effect.permit_id
                self._core.permit_started(self._now_ms, name, effect.model, effect.instance_id)
                self._running.append(name)


_Entry = tuple[int, int, int]
"""Tier, the highest first; arrival; cost."""


class HeapLoad:
    """One heap."""

    def __init__(self, case: Case) -> None:
        self._waiting: list[_Entry] = []
        self._running: deque[_Entry] = deque()
        self._free, self._number = SLOTS, 0
        self._new = newcomers(case)
        for line in crowd(case):
            self._arrive(line)

    def pairs(self, count: int) -> None:
        """See `Load`."""
        for _ in range(count):
            self._arrive(next(self._new))
            self._free += self._running.popleft()[2]
            self._hand_on()

    def _arrive(self, line: Line) -> None:
        self._number += 1
        heapq.heappush(self._waiting, (-line.tier, self._number, MODELS[line.model]))
        self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting and self._waiting[0][2] <= self._free:
            first = heapq.heappop(self._waiting)
            self._free -= first[2]
            self._running.append(first)


class BroadcastLoad(HeapLoad):
    """One condition."""

    def _hand_on(self) -> None:
        if self._waiting and self._waiting[0][2] > self._free:
            return  # nothing was released
        granted = True
        while granted and self._waiting:
            granted = False
            for woken in self._waiting:
                if woken is self._waiting[0] and woken[2] <= self._free:
                    granted = True
            if granted:
                first = heapq.heappop(self._waiting)
                self._free -= first[2]
                self._running.append(first)


LOADS: dict[str, Callable[[Case], Load]] = {
    CORE: CoreLoad,
    "bare heap": HeapLoad,
    "broadcast": BroadcastLoad,
}
