"""All that the scheduler's core remembers. Pure; its parts are passed these books to change."""

from typing import Any

from services.scheduler.core.alarms import Alarm, Alarms
from services.scheduler.core.clients import Clients
from services.scheduler.core.holds import Holds
from services.scheduler.core.line import Order, Waiter
from services.scheduler.core.permits import PermitBook
from services.scheduler.core.queue import WaitingRoom
from services.scheduler.core.runs import Runs
from services.scheduler.core.settings import ModelRule, Settings
from services.scheduler.core.state import Model
from services.scheduler.core.values import Cause, Effect, Refuse, Request

_NO_RULE = ModelRule()
_KNOWN_MS = 20
"""What the broker refused to one, it refuses for as long to who asks for more."""


class Books:
    """Permits, queues, clients, models."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models: dict[str, Model] = {}
        self.room = WaitingRoom(settings.fairness)
        self.permits = PermitBook(settings.permits)
        self.clients = Clients(settings.fairness)
        self.runs = Runs()
        self.holds = Holds()
        self.alarms = Alarms(self._is_stale)
        self.loads: dict[str, dict[str, Waiter]] = {}
        """Who only wants a model loaded, by model."""
        self.unsettled: set[str] = set()
        """Models that are waited for and do not, or may not, serve: residency looks at these."""
        self.claims: list[tuple[int, Order, int]] = []
        """Headroom that is spoken for: by whose need (urgency, order), and how much."""
        self.lent_ms = 0
        """When the broker granted a lease last."""
        self.changes = 0
        """Counts what may let somebody leave who could not: a load has ended, a pin holds no more.
        """
        self.freed_ms = -settings.memory_back_ms
        """When a model or a request gave memory back last."""
        self._refused: tuple[int, int, int] | None = None
        """When the broker said last how little there is, for which rank, how much."""
        self._looks: set[tuple[str, int]] = set()

    def forget(self, now_ms: int, waiter: Waiter) -> None:
        """A request waits no more. What was set aside for it is given back."""
        self.set_back(waiter)
        self.room.remove(waiter)
        self.clients.settle(now_ms, waiter.client)
        if waiter.request.load_only:
            loads = self.loads[waiter.model]
            del loads[waiter.name]
            if not loads:
                del self.loads[waiter.model]
        model = self.models.get(waiter.model)
        if model is not None and model.pinned_by == waiter.name:
            self.unpin(model)

    def unpin(self, model: Model) -> None:
        """Who it was loaded for is granted or gone (0e)."""
        model.pinned_by = ""
        self.changes += 1

    def rule(self, key: str) -> ModelRule:
        """What is configured about a model."""
        return self.settings.rules.get(key, _NO_RULE)

    def need_mib(self, request: Request, model: Model | None) -> int:
        """The least of transient memory that a request can do with."""
        preferred = request.preferred_mib or (model.facts.peak_mib if model is not None else 0)
        return min(request.minimum_mib or preferred, preferred) if preferred else 0

    def size_up(self, key: str) -> None:
        """A model's peak has become known, or another: its waiters stand where they belong."""
        for waiter in self.room.of(key):
            need_mib = self.need_mib(waiter.request, self.models.get(key))
            if waiter.line is not None and need_mib != waiter.need_mib:
                self.room.resize(waiter, need_mib)

    def set_back(self, waiter: Waiter) -> None:
        """Give back the permits and the place that were set aside for a waiter, if they were."""
        instance, waiter.instance = waiter.instance, None
        if instance is None:
            return
        self.permits.give_back(waiter.cost, waiter.runs_as)
        waiter.runs_as = waiter.rank
        if (model := self.models.get(waiter.model)) is not None:
            model.vacate(instance.facts.instance_id)

    def stand_again(self, waiter: Waiter) -> None:
        """Its memory was not to be had: back to its place in line."""
        self.set_back(waiter)
        self.room.stand_again(waiter)

    def refuse(
        self,
        now_ms: int,
        out: list[Effect],
        waiter: Waiter,
        cause: Cause,
        detail: str = "",
        retry_after_ms: int | None = None,
    ) -> None:
        """Send a waiter away."""
        self.forget(now_ms, waiter)
        out.append(Refuse(waiter.name, cause, detail, retry_after_ms))

    def refuse_all(
        self,
        now_ms: int,
        out: list[Effect],
        key: str,
        cause: Cause,
        detail: str,
        retry_after_ms: int | None = None,
    ) -> None:
        """Send everyone away who waits for a model."""
        for waiter in self.room.of(key):
            self.refuse(now_ms, out, waiter, cause, detail, retry_after_ms)

    def running_in(self, lane: str) -> int:
        """Requests of a lane that run, or whose permits are set aside."""
        out = sum(permit.lane == lane for permit in self.permits.out.values())
        return out + sum(waiter.lane.name == lane for waiter in self.room.aside.values())

    def claimed_before(self, rank: int, order: Order) -> int:
        """Headroom that is spoken for by those who are more urgent."""
        return sum(mib for urgency, since, mib in self.claims if (urgency, since) < (-rank, order))

    def refused(self, now_ms: int, rank: int, headroom_mib: int) -> None:
        """The broker has told how much there is for a rank."""
        self._refused = (now_ms, rank, headroom_mib)

    def room_for(self, now_ms: int, rank: int) -> int | None:
        """The headroom at most, if the broker told a moment ago; None: it has to be asked."""
        if self._refused is None:
            return None
        told_ms, told_rank, headroom_mib = self._refused
        known = rank == told_rank and now_ms <= told_ms + _KNOWN_MS  # other tiers: other floors
        return headroom_mib if known else None

    def memory_may_be_back(self, *, pause_ms: int = 0) -> None:
        """Leases that were refused may be asked for again, each after a pause since the last."""
        self._refused = None
        for key in self.unsettled:
            model = self.models.get(key)
            if model is None:
                continue
            model.short = 0
            again_ms = model.asked_ms + pause_ms
            if not model.serves and again_ms < model.ask_again_ms:
                model.ask_again_ms = again_ms
                if pause_ms:
                    self.look_at(again_ms, key)

    def look_at(self, when_ms: int, key: str) -> None:
        """Decide about a model anew at that time; said more than once, it rings once."""
        look = (key, when_ms)
        if look not in self._looks:
            self._looks.add(look)
            self.alarms.set(when_ms, Alarm.LOOK, look)

    def looked_at(self, look: tuple[str, int]) -> str:
        """The time has come; the model's key."""
        self._looks.discard(look)
        return look[0]

    def _is_stale(self, what: Alarm, subject: Any) -> bool:
        if what <= Alarm.PROMOTE:
            return not subject.waits
        if what <= Alarm.RAN:
            return bool(subject.over)
        if what is Alarm.HOLD:
            lane, holder, until_ms = subject
            return bool(self.holds.until(lane, holder) != until_ms)
        return False
