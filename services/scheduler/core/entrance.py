"""Who may wait, for which model, and in which place. Pure. Rules 0f, 1, 3 and 5 of `scheduler`."""

from services.scheduler.core import twins
from services.scheduler.core.alarms import Alarm
from services.scheduler.core.books import Books
from services.scheduler.core.line import Order, Waiter
from services.scheduler.core.queue import CHILD
from services.scheduler.core.scan import Scan
from services.scheduler.core.state import Model
from services.scheduler.core.values import Cause, Effect, Lane, Refuse, Request, Tier

RETRY_AFTER_MS = 1_000
_WAITED = Alarm.WAITED
"""Where waiting helps and nobody can say how long."""


class Entrance:
    """Lets requests in, or says why not."""

    def __init__(self, books: Books, scan: Scan) -> None:
        self._books = books
        self._scan = scan
        settings = books.settings
        limits = settings.queue_limits
        self._limits = [0, *(limits.get(tier, settings.queue_limit) for tier in Tier)]
        self._limits.append(settings.queue_limit)
        """Requests that may wait, by rank."""

    def model_of(self, request: Request) -> Model | None:
        """The model that is to serve it, a twin perhaps; None while none of that name is known."""
        books = self._books
        model = books.models.get(request.model)
        if model is not None and not model.facts.removed:
            return model
        if not request.model:
            return None
        family = request.model
        models = books.models.values()
        members = [m for m in models if m.facts.family == family and not m.facts.removed]
        if not members:
            return None
        return twins.choose(members, request.tokens, load_only=request.load_only)  # 5

    def lane_of(self, request: Request, model: Model | None) -> Lane:
        """The lane that it is charged to."""
        name = request.lane or (model.facts.lane if model is not None else "")
        return self._books.settings.lane_of(name)

    @staticmethod
    def rank_of(request: Request, lane: Lane) -> Tier:
        """The tier that it waits and runs in."""
        return Tier.BACKGROUND if lane.background else request.tier

    def refusal(
        self, now_ms: int, request: Request, model: Model | None, rank: int
    ) -> Refuse | None:
        """Why it may not wait; None: it may."""
        name = request.permit_id
        if model is not None and model.facts.removed:
            return Refuse(name, Cause.MODEL_NOT_FOUND, request.model)  # 6
        if model is not None and model.facts.retry_at_ms and (wait_ms := model.cooling_ms(now_ms)):
            return Refuse(name, Cause.MODEL_FAILED, model.facts.failure, wait_ms)  # 3
        if request.parent:
            if request.parent not in self._books.permits.out:
                return Refuse(name, Cause.PARENT_OVER)  # 0f
            rank = CHILD
        key = model.facts.key if model is not None else request.model
        full = self._full(request, key, rank)
        if full is not None:
            cause, limit = full
            return Refuse(name, cause, f"{limit}", RETRY_AFTER_MS)
        would_wait = rank <= self._scan.stopped_at or model is None or not model.open
        if request.try_acquire and would_wait:
            return Refuse(name, Cause.SATURATED, "", RETRY_AFTER_MS)  # 1
        return None

    def enter(
        self,
        now_ms: int,
        request: Request,
        key: str,
        lane: Lane,
        rank: int,
        order: Order | None = None,
    ) -> Waiter:
        """Let it wait for the model `key`; with an `order`, in the place that it had."""
        books = self._books
        cost = lane.cost
        if request.parent:
            rank, cost = CHILD, 0
        elif request.load_only:
            cost = 0
        elif cost > books.permits.total:
            cost = books.permits.total
        client = books.clients.enter(now_ms, request.key)
        need_mib = books.need_mib(request, books.models.get(key))
        waiter = Waiter(request, key, rank, lane, cost, need_mib, client)
        if request.parent and lane.name in books.permits.lanes_of(request.parent):
            waiter.gate = ""  # a hold waits for what runs in its lane, and that for its calls
        books.room.add(waiter, order)
        if request.load_only:
            books.loads.setdefault(key, {})[request.permit_id] = waiter
        books.alarms.set(request.arrived_ms + lane.wait_ms, _WAITED, waiter)
        if books.settings.promote_after_ms:
            self._promote_later(request.arrived_ms, waiter)
        return waiter

    def promote(self, now_ms: int, waiter: Waiter) -> None:
        """It has waited long enough in its tier to go up by one."""
        self._books.room.promote(waiter)
        self._promote_later(now_ms, waiter)

    def name_unknown(self, now_ms: int, out: list[Effect]) -> None:
        """Every model there is has been reported: whoever waits for another waits in vain."""
        room = self._books.room
        for key in room.models() - self._books.models.keys():
            for waiter in room.of(key):
                self.rename(now_ms, waiter, out)

    def turn_away(self, now_ms: int, key: str, out: list[Effect]) -> None:
        """A model is configured no more: who waits for it goes to a twin, or is refused (6)."""
        for waiter in self._books.room.of(key):
            if waiter.instance is not None:  # what the broker answers is for this model alone
                self._books.refuse(now_ms, out, waiter, Cause.MODEL_NOT_FOUND, key)
            else:
                self.rename(now_ms, waiter, out)

    def rename(self, now_ms: int, waiter: Waiter, out: list[Effect]) -> None:
        """What it waits for is a family, some member of which serves it, or does not exist."""
        books, request = self._books, waiter.request
        model = self.model_of(request)
        if model is None:
            books.refuse(now_ms, out, waiter, Cause.MODEL_NOT_FOUND, request.model)
            return
        books.forget(now_ms, waiter)
        lane = self.lane_of(request, model)
        rank = self.rank_of(request, lane)
        self.enter(now_ms, request, model.key, lane, rank, waiter.order)
        books.unsettled.add(model.key)

    def readmit(self, now_ms: int, key: str) -> None:
        """A model has become known: who waits for it is of its lane, with all that this means."""
        books, model = self._books, self._books.models[key]
        for waiter in books.room.of(key):
            request = waiter.request
            lane = self.lane_of(request, model)
            books.forget(now_ms, waiter)
            rank = self.rank_of(request, lane)
            self.enter(now_ms, request, key, lane, rank, waiter.order)

    def _full(self, request: Request, key: str, rank: int) -> tuple[Cause, int] | None:
        room, fairness = self._books.room, self._books.settings.fairness
        if room.counts[rank] >= self._limits[rank]:
            return Cause.QUEUE_FULL, self._limits[rank]
        if room.waiting_for(key) >= fairness.pending_per_model:
            return Cause.MODEL_QUEUE_FULL, fairness.pending_per_model
        if request.key and room.pending.get((key, request.key), 0) >= fairness.pending_per_key:
            return Cause.KEY_QUEUE_FULL, fairness.pending_per_key
        return None

    def _promote_later(self, since_ms: int, waiter: Waiter) -> None:
        if waiter.rank < Tier.PAID:
            after_ms = self._books.settings.promote_after_ms.get(Tier(waiter.rank))
            if after_ms is not None:
                self._books.alarms.set(since_ms + after_ms, Alarm.PROMOTE, waiter)
