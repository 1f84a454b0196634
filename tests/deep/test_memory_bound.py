"""What has ended is forgotten: the core's memory is bounded by what is alive.

Tens of thousands of requests pass through in every way that a request can end, each with a name and
a key of its own. Everything reachable from the core is counted, dumbly; a second helping as large
as the first must not add to it (but for what lazy sweeping leaves).
"""

import gc
import types
from collections import deque

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
    Tier,
)
from tests.deep.history import PATIENCE

pytestmark = PATIENCE

ROUNDS = 30_000
"""More than the core remembers of anything that has ended."""
LANE = Lane("chat", 1, wait_ms=60_000, max_run_ms=600_000)


class Traffic:
    """One core and all that passes through it."""

    def __init__(self) -> None:
        settings = Settings(4, lambda name: LANE, fairness=Fairness(idle_ttl_ms=5_000))
        self.core = SchedulerCore(settings)
        self.now = 0
        self.count = 0
        instance = InstanceFacts("i1", State.READY, "unix:i1", places=4)
        ready = ModelFacts("m", "chat", State.READY, 100, peak_mib=10, instances=(instance,))
        self.core.model_changed(0, ready)
        self.core.model_changed(0, ModelFacts("cold", "chat", State.COLD, 100))
        self.core.catalogue_complete(0)

    def pass_through(self, rounds: int) -> None:
        """Requests that run, give up, are refused, lapse and wait in vain."""
        for number in range(rounds):
            self.now += 10
            (self._runs, self._gives_up, self._is_denied, self._tries)[number % 4]()
            if number % 50 == 0:
                self._ring()

    def end(self) -> None:
        """All is over, and every deadline has passed."""
        self.now += 100_000
        self._ring()

    def _ring(self) -> None:
        while (due := self.core.next_alarm_ms) is not None and due <= self.now:
            self.core.tick(self.now)

    def wish(self, model: str = "m", *, tries: bool = False) -> Request:
        """A request with a name and a key of its own."""
        self.count += 1
        name, key = f"r{self.count}", f"k{self.count}"
        return Request(name, model, Tier.FREE, self.now, key=key, try_acquire=tries)

    def _runs(self) -> None:
        request = self.wish()
        name, core = request.permit_id, self.core
        core.arrive(self.now, request)
        if _granted(core.transient_granted(self.now, name, f"lease-{name}", 10)):
            core.permit_started(self.now, name, "m", "i1")
        core.permit_over(self.now, name)
        core.leave(self.now, name)

    def _gives_up(self) -> None:
        request = self.wish("cold")
        self.core.arrive(self.now, request)
        self.core.lease_denied(self.now, "cold", never=False, detail="", headroom_mib=0)
        self.core.leave(self.now, request.permit_id)

    def _is_denied(self) -> None:
        request = self.wish()
        self.core.arrive(self.now, request)
        self.core.transient_denied(
            self.now, request.permit_id, never=True, detail="", headroom_mib=0
        )

    def _tries(self) -> None:
        self.core.arrive(self.now, self.wish("cold", tries=True))
        self.core.arrive(self.now, self.wish("nobody"))


def _granted(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Grant) for effect in effects)


def _reachable(root: object) -> int:
    """How many objects hang on one, code and classes aside."""
    seen = {id(root)}
    left: deque[object] = deque([root])
    while left:
        for one in gc.get_referents(left.popleft()):
            code = isinstance(one, type | types.ModuleType | types.FunctionType | types.CodeType)
            if not code and id(one) not in seen:
                seen.add(id(one))
                left.append(one)
    return len(seen)


def test_what_has_ended_is_forgotten() -> None:
    traffic = Traffic()
    traffic.pass_through(ROUNDS)
    traffic.end()
    before = _reachable(traffic.core)
    traffic.pass_through(ROUNDS)
    traffic.end()
    after = _reachable(traffic.core)
    assert not traffic.core.permits
    assert not traffic.core.queue_positions()
    assert after <= before + ROUNDS // 10, f"{before} objects, then {after}"


def test_what_waits_is_all_there_is() -> None:
    """Nothing of 30,000 that came and went is left beside the ten that wait."""
    traffic, fresh = Traffic(), Traffic()
    traffic.pass_through(ROUNDS)
    for house in (traffic, fresh):
        house.end()
        for _ in range(10):
            house.core.arrive(house.now, house.wish("cold"))
    alive = _reachable(fresh.core)
    remembered = _reachable(traffic.core) - alive
    assert remembered <= 25_000, f"{remembered} objects of what has ended are kept"
