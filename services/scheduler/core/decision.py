"""What the scheduler remembers, and the decision that ends every event of its core. Pure.

1.  Permits. Tiers from the highest; within a tier, first come first served over all models that
    are READY with a free place.
    1a. A waiter whose own model is not READY, or has no free place, stands aside: it holds up
        nobody else.
    1b. The first one that lacks permits stops the scan: nobody overtakes it with a cheaper
        request, in its tier or below.
    1c. Background starts only when nothing else runs or waits.
    1d. Who only wants a model loaded is granted when it is READY, and needs no permit.
2.  Residency. Models that are COLD and waited for, the most urgent waiter first.
    2a. A lease is asked for before anything is loaded. One question at a time is open.
    2b. Granted: load. Refused for ever: its waiters are refused.
    2c. Refused for now: the least recently used idle model is unloaded, and the lease asked for
        again when that memory has come back. Idle means: nothing runs on it, and nobody more
        urgent waits for it.
    2d. Nothing idle: ask again when something ended, or after `ASK_AGAIN_MS`. No answer at all is
        no refusal: nothing is unloaded for it.
3.  A model that FAILED refuses its waiters at once, with the time until it may be tried again; if
    that time is now, it counts as COLD.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from services.scheduler.core import admission, residency
from services.scheduler.core.alarms import Alarm, Alarms
from services.scheduler.core.permits import PermitBook
from services.scheduler.core.queue import WaitingRoom
from services.scheduler.core.state import Model, Permit
from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    Cause,
    Effect,
    Grant,
    Lane,
    Refuse,
    Request,
    Tier,
)

ASK_AGAIN_MS = 500
"""A lease that was refused is asked for again after this."""


@dataclass(slots=True)
class Decision:
    """The state, and what to do about it now."""

    permits_total: int
    lane_of: Callable[[str], Lane]
    queue_limit: int
    use_within_ms: int
    models: dict[str, Model] = field(default_factory=dict)
    room: WaitingRoom = field(default_factory=WaitingRoom)
    reconciled: bool = False
    """Granting may begin."""
    catalogued: bool = False
    """Every model service has reported: a model that is not known does not exist."""
    loads: dict[str, dict[str, Request]] = field(default_factory=dict)
    """Who only wants a model loaded, by model."""
    alarms: Alarms = field(default_factory=Alarms)
    book: PermitBook = field(init=False)

    def __post_init__(self) -> None:
        self.book = PermitBook(self.alarms)

    @property
    def permits(self) -> Mapping[str, Permit]:
        """The permits that are out, by id."""
        return self.book.out

    @property
    def in_use(self) -> int:
        """What they cost together; more than there are only after a restart found them running."""
        return self.book.in_use

    # -- the decision ------------------------------------------------------------------------

    def decide(self, now_ms: int) -> list[Effect]:
        """Grant what may run now, and ask for the memory of what is waited for."""
        if not self.reconciled:
            return []
        effects = self._grant_loads(now_ms)
        effects += self._grant_permits(now_ms)
        return effects + self._ask_for_leases(now_ms)

    def _grant_loads(self, now_ms: int) -> list[Effect]:
        served = [key for key in self.loads if key in self.models and self.models[key].serves]
        waiting = [request for key in served for request in self.loads[key].values()]
        return [self._grant(now_ms, request, self.lane_for(request), 0) for request in waiting]

    def _grant_permits(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for tier in reversed(Tier):
            while (request := admission.next_ready(tier, self.models, self.room)) is not None:
                lane = self.lane_for(request)
                cost = min(lane.cost, self.permits_total)
                if cost > self.permits_total - self.in_use:
                    return effects  # 1b
                if tier is Tier.BACKGROUND and self._somebody_else():
                    return effects  # 1c
                effects.append(self._grant(now_ms, request, lane, cost))
        return effects

    def _grant(self, now_ms: int, request: Request, lane: Lane, cost: int) -> Grant:
        model = self.models[request.model]
        model.last_used_ms = now_ms
        self.forget(request)
        if not request.load_only:
            address = model.facts.address
            permit = Permit(request, cost, lane.name, request.model, address, now_ms)
            self.book.hold(permit, now_ms + lane.max_run_ms, now_ms + self.use_within_ms)
            model.running += 1
        return Grant(
            request.permit_id,
            request.model,
            model.facts.address,
            model.facts.instance_id,
            waited_ms=now_ms - request.arrived_ms,
            max_run_ms=lane.max_run_ms,
        )

    def _ask_for_leases(self, now_ms: int) -> list[Effect]:
        wanted = residency.most_wanted(now_ms, self.models, self.room)
        if wanted is None:
            return []
        key, tier = wanted
        model = self.models[key]
        model.asking = True
        return [AskLease(key, model.facts.resident_mib, tier)]

    # -- pieces ------------------------------------------------------------------------------

    def settle(self, now_ms: int, permit: Permit) -> list[Effect]:
        """Free a permit whose stream is closed and whose engine is done; ask if it may not be."""
        if not permit.stream_closed:
            return []
        if permit.engine_over:
            return self.release(now_ms, permit)
        return [AskEngine(permit.request.permit_id, permit.address, only_if_not_started=False)]

    def release(self, now_ms: int, permit: Permit) -> list[Effect]:
        """A permit is free; decide who gets it."""
        self.book.release(permit)
        if model := self.models.get(permit.model):
            model.running -= 1
            model.last_used_ms = now_ms
            if model.running == 0:
                self.memory_may_be_back()
        return self.decide(now_ms)

    def _somebody_else(self) -> bool:
        return admission.somebody_else(self.permits.values(), self.room)

    def refuse_all(
        self, key: str, cause: Cause, detail: str, retry_after_ms: int | None
    ) -> list[Effect]:
        """Everyone who waits for a model is refused."""
        refused: list[Effect] = []
        for request in self.room.of(key):
            self.forget(request)
            refused.append(Refuse(request.permit_id, cause, detail, retry_after_ms))
        return refused

    def memory_may_be_back(self) -> None:
        """Leases that were refused may be asked for again at once."""
        for model in self.models.values():
            model.ask_again_ms = 0

    def forget(self, request: Request) -> None:
        """A request waits no more."""
        self.room.remove(request)
        self.alarms.cancel(Alarm.WAITED, request.permit_id)
        loads = self.loads.get(request.model, {})
        if loads.pop(request.permit_id, None) and not loads:
            del self.loads[request.model]

    def lane_for(self, request: Request) -> Lane:
        """The lane a request is charged to."""
        model = self.models.get(request.model)
        return self.lane_of(request.lane or (model.facts.lane if model else ""))
