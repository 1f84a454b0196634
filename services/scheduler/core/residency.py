"""Which models live on the device: whose memory is asked for, and when room is made. Pure.

Rules 2 to 2e of `scheduler`. Who may go is said in `choosing`, which of them is cheapest in `plan`,
how they go in `leaving`.
"""

from services.scheduler.core.books import Books
from services.scheduler.core.choosing import Choosing
from services.scheduler.core.leaving import Leaving
from services.scheduler.core.line import Waiter
from services.scheduler.core.state import Model, Need
from services.scheduler.core.values import AskLease, Cause, Effect, State, Tier

ASK_AGAIN_MS = 500
"""A lease that was refused is asked for again after this."""
MOST_ASK_AGAIN_MS = 2_000
GROW_AGAIN_MS = 5_000
"""A further instance, for which nobody has to leave, after this."""
_SETTLE_MS = 2_000
"""Nobody else has to leave while the device may not show yet what the last ones gave back."""
_PLAN_AGAIN_MS = 400
"""A plan whose models have yet to leave is made anew after this, …"""
_NO_PLAN_AGAIN_MS = 250
"""… and one that found nobody to leave after this, if nothing has changed."""
_MOST_NEEDS = 4
"""So many models at once have others leave for them: it is their turn first in any case."""
_PLENTY_MIB = 1 << 40


class Residency:
    """Asks for memory, in order of urgency, and has models leave."""

    def __init__(self, books: Books, leaving: Leaving, choosing: Choosing) -> None:
        self._books = books
        self._leaving = leaving
        self._choosing = choosing

    def run(self, now_ms: int, out: list[Effect]) -> None:
        """Do what can be done for the models that are waited for and do not serve."""
        claims = self._books.claims = []
        ahead: list[str] = []
        promised_mib, pressing = 0, 0
        for model, first in self._wanted(now_ms):
            need = model.need
            claim_mib = self._leaving.settle(now_ms, model, need, out) if need is not None else 0
            if need is not None and claim_mib:
                claims.append((-need.rank, need.order, claim_mib))
            if model.asking:
                return  # 2: one question at a time
            if first.rank == Tier.BACKGROUND and pressing:
                return  # 0d: what it loaded would only be given up
            pressing += need is not None
            if not self._may_ask(now_ms, model) or not self._may_live_beside(model.key, ahead):
                promised_mib += claim_mib  # 2e
            elif self.rules_forbid(model.key):
                self._ask_later(now_ms, model, ASK_AGAIN_MS)
                self._make_room(now_ms, model, first, _PLENTY_MIB, out)
            elif self._ask(now_ms, model, first, promised_mib, pressing, out):
                return
            else:
                promised_mib += claim_mib
            if self._leaving.makes_room(model):
                ahead.append(model.key)

    def _ask(
        self,
        now_ms: int,
        model: Model,
        first: Waiter,
        promised_mib: int,
        pressing: int,
        out: list[Effect],
    ) -> bool:
        """Ask for its lease; False: a moment ago there was less, and room has to be made."""
        resident_mib = model.facts.resident_mib
        leave_mib = max(self._peak_beside(model), first.need_mib) + promised_mib
        model.promised_mib = promised_mib
        room_mib = self._books.room_for(now_ms, first.rank)
        if model.doubtful:
            leave_mib, room_mib = max(model.facts.peak_mib, first.need_mib), None
        if room_mib is not None and resident_mib + leave_mib > room_mib:
            if pressing > _MOST_NEEDS:
                self._ask_later(now_ms, model, ASK_AGAIN_MS)
                return False
            self.denied(now_ms, model, first, room_mib, out)
            return False
        model.asking, model.asked_ms, model.asked_rank = True, now_ms, first.rank
        model.for_others = leave_mib > max(model.facts.peak_mib, first.need_mib)
        out.append(AskLease(model.key, resident_mib, tier_of(first), leave_mib))
        return True

    def denied(
        self, now_ms: int, model: Model, first: Waiter, headroom_mib: int, out: list[Effect]
    ) -> None:
        """The broker has not the memory for it now."""
        if model.facts.state is State.READY and not model.short:
            self._ask_later(now_ms, model, GROW_AGAIN_MS)  # nobody leaves for a further instance
            return
        self._ask_later(now_ms, model, ASK_AGAIN_MS)
        headroom_mib -= model.promised_mib
        if headroom_mib >= 0:  # else nobody leaves for it before the more urgent have theirs
            self._make_room(now_ms, model, first, headroom_mib, out)

    # -- who wants memory --------------------------------------------------------------------

    def _wanted(self, now_ms: int) -> list[tuple[Model, Waiter]]:
        """Models that lack something for somebody, the most urgent first."""
        books = self._books
        wanted = []
        for key in list(books.unsettled):
            model = books.models.get(key)
            first = self._first_that_lacks(key, model)
            lacks = model is None or not model.serves or model.short or model.could_grow
            if first is None and model is not None:
                model.thirst = 0
            if first is None or not lacks:
                books.unsettled.discard(key)
                if model is not None:
                    self._note_vacated(now_ms, model, wanted=first is not None)
                    self._leaving.drop(model)
            elif model is not None:
                self._drop_if_stale(now_ms, model, first)
                if not books.holds.closed(first.gate):
                    wanted.append((-first.rank, first.order, model, first))
        wanted.sort(key=lambda entry: entry[:2])
        return [(model, first) for _, _, model, first in wanted]

    def _drop_if_stale(self, now_ms: int, model: Model, first: Waiter) -> None:
        """The waiter is gone whom others were to leave for: nobody is kept from them any more."""
        need = model.need
        if need is not None and (-need.rank, need.order) < (-first.rank, first.order):
            self._leaving.drop(model)
            model.ask_again_ms = min(model.ask_again_ms, now_ms)

    def _ask_later(self, now_ms: int, model: Model, after_ms: int) -> None:
        """Longer each time: that something has changed is heard of at once in any case."""
        if model.vacated_ms:
            model.denials = 0  # what the device shows as free can only be asked for
        after_ms = max(after_ms, min(after_ms << min(model.denials // 2, 8), MOST_ASK_AGAIN_MS))
        model.denials += 1
        model.ask_again_ms = now_ms + after_ms
        self._books.look_at(model.ask_again_ms, model.key)

    def _may_ask(self, now_ms: int, model: Model) -> bool:
        if model.short or now_ms < model.ask_again_ms:
            return False  # a request's memory is asked for by the scan, when it stands again
        if model.facts.state is State.READY:
            return model.could_grow and not model.starting
        if not model.loadable(now_ms):
            return False
        return not self._leaving.for_model(model)

    def _first_that_lacks(self, key: str, model: Model | None) -> Waiter | None:
        if model is None or not model.short:
            return self._books.room.first(key)
        refused = self._books.room.get(model.short_for)
        if refused is None:
            model.short = 0  # it left; who needs as much may ask for it
        return refused

    def _note_vacated(self, now_ms: int, model: Model, *, wanted: bool) -> None:
        """Its requests may ask again; if they do at once, the device may not show it yet."""
        need = model.need
        if not wanted:
            model.vacated_ms = 0
        elif need is not None and need.victims and not self._leaving.still_here(need):
            model.vacated_ms = model.vacated_ms or now_ms

    def rules_forbid(self, key: str) -> bool:
        """The sets do not let it live beside what is resident, or about to be asked for."""
        rules = self._books.settings.sets
        if rules is None:
            return False
        models = self._books.models.values()
        residents = {m.key for m in models if m.resident or m.asking} | {key}
        return not rules.allows(residents)

    def _may_live_beside(self, key: str, ahead: list[str]) -> bool:
        """2e: it would not keep out those who are more urgent, and for whom others leave."""
        rules = self._books.settings.sets
        return rules is None or all(rules.allows({key, other}) for other in ahead)

    def _peak_beside(self, model: Model) -> int:
        """The largest peak that a request may add once the model is resident."""
        others = (m for m in self._books.models.values() if m.resident or m is model)
        return max((m.peak_left_mib for m in others), default=0)

    # -- who leaves --------------------------------------------------------------------------

    def _make_room(
        self, now_ms: int, model: Model, first: Waiter, headroom_mib: int, out: list[Effect]
    ) -> None:
        """2: plan with idle models alone; only if that is not enough, with busy ones."""
        if model.vacated_ms and now_ms < model.vacated_ms + _SETTLE_MS:
            return  # they have left, and the device may not show it yet
        if self._plan_stands(now_ms, model.need, first, headroom_mib):
            return
        due_ms = first.order[0] + self._books.settings.max_swap_delay_ms
        need = Need(first.rank, first.order, due_ms, self._amount_of(model, first))
        if (parent := self._books.permits.out.get(first.request.parent)) is not None:
            need.rank, need.spared = parent.rank, self._books.permits.models_of(parent.name)
        chosen = self._choosing.victims(now_ms, model, need, headroom_mib)
        self._leaving.drop(model)
        need.victims, need.planned_ms, need.headroom_mib = chosen, now_ms, headroom_mib
        need.changes = self._books.changes
        if not chosen and self._never_beside(now_ms, model, first, need):
            why = f"it does not fit beside {' and '.join(need.spared)}, for which it would run"
            self._books.refuse(now_ms, out, first, Cause.NEVER_FITS, why)
            return
        model.need = need
        self._books.unsettled.add(model.key)
        if need.victims:
            model.vacated_ms = 0
            self._leaving.settle(now_ms, model, need, out)
        elif model.vacated_ms:
            self._give_up_waiting(now_ms, model, out)
        elif need.rank == Tier.BACKGROUND:
            self._ask_when_quiet(now_ms, model)

    def _never_beside(self, now_ms: int, model: Model, first: Waiter, need: Need) -> bool:
        """0f: its parent's models stay, and beside them it would not fit if all else left.

        Only a while later is that certain: what others gave back, or hold for a moment who are no
        tenants of ours, the device shows late.
        """
        since_ms = max(self._books.freed_ms, first.order[0])
        if not need.spared or now_ms < since_ms + self._books.settings.memory_back_ms:
            return False
        needed_mib = need.amount_mib + (0 if model.short else first.need_mib)
        return self._choosing.most_mib(model, need) < needed_mib

    def _ask_when_quiet(self, now_ms: int, model: Model) -> None:
        quiet_at_ms = self._choosing.next_quiet_ms(now_ms)
        if quiet_at_ms is not None and quiet_at_ms < model.ask_again_ms:
            model.ask_again_ms = quiet_at_ms
            self._books.look_at(quiet_at_ms, model.key)

    def _give_up_waiting(self, now_ms: int, model: Model, out: list[Effect]) -> None:
        """3: nobody else can leave, and the device has not shown what the others gave back."""
        within_ms = self._books.settings.memory_back_ms
        if model.vacated_ms <= self._books.lent_ms or self._leaving.somebody_works(model):
            model.vacated_ms = 0  # it was there, and somebody else has it; or more comes yet
        elif now_ms >= model.vacated_ms + within_ms:
            self._leaving.drop(model)
            model.vacated_ms = 0
            why = f"models left for it, and the device shows no free memory after {within_ms} ms"
            self._books.refuse_all(now_ms, out, model.key, Cause.MODEL_FAILED, why, within_ms)

    def _amount_of(self, model: Model, first: Waiter) -> int:
        if not model.short:
            return model.facts.resident_mib
        return first.need_mib

    def _plan_stands(
        self, now_ms: int, need: Need | None, first: Waiter, headroom_mib: int
    ) -> bool:
        """Those who were to leave are still to, and a better plan is looked for in a while."""
        if need is None or need.order != first.order:
            return False
        if not need.victims:
            soon = now_ms < need.planned_ms + _NO_PLAN_AGAIN_MS
            same = headroom_mib == need.headroom_mib and need.changes == self._books.changes
            return soon and same
        if now_ms >= need.planned_ms + _PLAN_AGAIN_MS:
            return False
        return len(self._leaving.still_here(need)) == len(need.victims)


def tier_of(waiter: Waiter) -> Tier:
    """The tier that a waiter's lease is asked under."""
    return Tier(min(waiter.rank, Tier.PAID))
