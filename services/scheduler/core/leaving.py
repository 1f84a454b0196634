"""How models leave for others: marked, idle, drained, dismissed. Pure. Rules 2a and 2d."""

from services.scheduler.core.books import Books
from services.scheduler.core.line import Order
from services.scheduler.core.scan import Scan
from services.scheduler.core.state import Model, Need
from services.scheduler.core.values import CancelLoad, Effect, StartUnload, State, Tier

_IDLE_DRAIN_MS = 1_000
"""For work that slips in while an idle model is being unloaded."""


class Leaving:
    """Has the victims of needs leave, each when it may."""

    def __init__(self, books: Books, scan: Scan) -> None:
        self._books = books
        self._scan = scan

    def settle(self, now_ms: int, model: Model, need: Need, out: list[Effect]) -> int:
        """2a, 2d: have the victims leave together, when they may; until then mark them.

        Answers what of the headroom there is, in MiB, has to be left for the need (2e).
        """
        going = [v for v in self.still_here(need) if self._goes_for(v, model, need)]
        if need.victims and not going:
            model.vacated_ms = model.vacated_ms or now_ms
        staying = [victim for victim in going if not self._on_its_way(victim)]
        for victim in staying:
            self._mark(now_ms, victim, model, need)
            self.look_when_lingered(now_ms, victim, need)
        if all(self.idle(now_ms, v, need) or self._must_go(now_ms, v, need) for v in staying):
            for victim in staying:
                self._dismiss(victim, model, out)
        # What those hold who have begun to leave comes at any moment, and is for nobody else.
        to_come_mib = sum(victim.held_mib for victim in going if not victim.leaving)
        has_claim = bool(going) or model.vacated_ms > 0
        return max(0, need.amount_mib - to_come_mib) if has_claim else 0

    @staticmethod
    def _on_its_way(victim: Model) -> bool:
        # Its service may be back, and still be draining it for a call of which nothing is known
        # here any more. It ends COLD, or is READY again and asked then.
        return victim.leaving or victim.facts.state is State.DRAINING

    def drop(self, model: Model) -> None:
        """Its memory is there, or wanted no more: who was marked for it goes on."""
        need, model.need = model.need, None
        for key in need.victims if need is not None else ():
            victim = self._books.models.get(key)
            if victim is not None and victim.wanted_by == model.key:
                victim.unmark()

    def still_here(self, need: Need) -> list[Model]:
        """Those of its victims that hold memory."""
        models = (self._books.models.get(key) for key in need.victims)
        return [model for model in models if model is not None and model.resident]

    def somebody_works(self, model: Model) -> bool:
        """Something of ours holds memory that it may give back without being asked: it runs, it
        leaves, or its own waiter comes first; for itself a model does not hold any."""
        others = (m for m in self._books.models.values() if m.resident and m is not model)
        return model.running > 0 or any(
            m.running or m.loading or m.leaving or m.pinned_by for m in others
        )

    def makes_room(self, model: Model) -> bool:
        """Others are to leave for it, or have left."""
        need = model.need
        if need is None:
            return False
        return model.vacated_ms > 0 or any(
            victim.wanted_by == model.key for victim in self.still_here(need)
        )

    def for_model(self, model: Model) -> bool:
        """Somebody is on the way out for it."""
        victims = self.still_here(model.need) if model.need is not None else ()
        return any(v.leaving and v.wanted_by == model.key for v in victims)

    def may_be_taken(self, victim: Model, wanting: str, need: Need) -> bool:
        """Nobody wants its memory, or nobody as urgent does and it has not begun to leave."""
        if victim.wanted_by in ("", wanting):
            return True
        other = self._books.models.get(victim.wanted_by)
        if other is None or other.need is None:
            return not victim.leaving
        less_urgent = (-need.rank, need.order) < (-other.need.rank, other.need.order)
        return less_urgent and not victim.leaving

    def bar_of_load(self, model: Model, need: Need) -> str:
        """Why its load may not be given up; empty: it may."""
        first = self._books.room.first(model.key)
        if first is None or (first.rank == Tier.BACKGROUND and need.rank > Tier.BACKGROUND):
            return ""  # 0d: its load is given up
        return "is being loaded"

    def pin_yields(self, model: Model, need: Need) -> bool:
        """0e holds, unless who it is pinned for may itself wait for what the need waits for, and
        both for ever."""
        waiter = self._books.room.get(model.pinned_by)
        if waiter is None or self._books.holds.closed(waiter.gate):
            return True
        if need.rank > waiter.rank and (model.pin_inherited or waiter.rank == Tier.BACKGROUND):
            return True  # 0d, and who it was loaded for has gone
        return self._thirst_of(model, need) > 0

    def _would_take(self, victim: Model, need: Need, before: Order | None) -> bool:
        short = self._thirst_of(victim, need)
        return self._scan.would_take(victim, need.rank, before, short)

    def _thirst_of(self, model: Model, need: Need) -> int:
        """What its waiters lack, if the need is more urgent than all of them."""
        first = self._books.room.first(model.key)
        if first is None or (-need.rank, need.order) < (-first.rank, first.order):
            return model.thirst
        return 0

    def idle(self, now_ms: int, victim: Model, need: Need) -> bool:
        """2d: nothing runs on it, and nobody waits whom it may take before it goes."""
        if victim.loading:
            return True
        if victim.running:
            return False
        before = need.order if now_ms >= need.due_ms else None
        if self._would_take(victim, need, before):
            return False
        return now_ms >= self._lingers_until_ms(victim, need)

    def look_when_lingered(self, now_ms: int, victim: Model, need: Need) -> None:
        """Decide anew when it has been kept long enough."""
        if now_ms < (until_ms := self._lingers_until_ms(victim, need)):
            self._books.look_at(until_ms, victim.key)

    def _goes_for(self, victim: Model, model: Model, need: Need) -> bool:
        """Unless it is wanted for somebody more urgent, or has gone and comes back for another."""
        if not victim.reachable:
            return False  # it is gone, or will report
        if victim.loading and not victim.leaving and self.bar_of_load(victim, need):
            return False
        if victim.pinned_by and not victim.leaving and not self.pin_yields(victim, need):
            return False
        used_since = victim.last_used_ms >= need.planned_ms and not victim.loading
        if need.rank == Tier.BACKGROUND and used_since and not victim.leaving:
            return False  # 0d
        return self.may_be_taken(victim, model.key, need)

    def _mark(self, now_ms: int, victim: Model, model: Model, need: Need) -> None:
        victim.wanted_by = model.key
        victim.least_rank = need.rank
        victim.before = need.order if now_ms >= need.due_ms else None
        if victim.before is None:
            self._books.look_at(need.due_ms, model.key)

    def _lingers_until_ms(self, victim: Model, need: Need) -> int:
        """It is kept until then for the next of its requests, if one is to be expected: its last
        ones came no further apart than twice as long as it would be kept. 0: it is not kept."""
        linger_ms = self._books.settings.linger_ms
        if victim.running or need.rank > victim.last_rank or victim.gap_ms > 2 * linger_ms:
            return 0
        return min(victim.last_used_ms + linger_ms, need.due_ms)

    def _must_go(self, now_ms: int, victim: Model, need: Need) -> bool:
        """What runs on it is to end: it is of lower tiers, or the delay is over."""
        if not victim.running:
            return False
        due = now_ms >= need.due_ms
        if self._would_take(victim, need, need.order if due else None):
            return False
        out = [p for p in self._books.permits.out.values() if p.model == victim.key]
        if len(out) < victim.running or not all(p.seen for p in out):
            return False  # a place is set aside, or a grant on its way: it is known in a moment
        highest = max((p.rank for p in out), default=0)
        return highest <= need.rank if due else highest < need.rank

    def _dismiss(self, victim: Model, model: Model, out: list[Effect]) -> None:
        victim.leaving = True
        victim.refresh()
        if self._books.room.waiting_for(victim.key):
            self._books.unsettled.add(victim.key)
        why = f"its memory is wanted for {model.key}"
        if victim.loading:
            # An engine that renews itself loads without a call of ours, whose end would be told.
            victim.given_up = victim.starting
            out.append(CancelLoad(victim.key, why))
        elif victim.running:
            out.append(StartUnload(victim.key, self._books.settings.drain_ms, True, why))
        else:
            out.append(StartUnload(victim.key, _IDLE_DRAIN_MS, False, why))
