"""Which models live on the device: what is asked for, who makes room for whom. Pure.

Rules 2 to 2d of `scheduler`, by their numbers; which victims are cheapest is decided in `plan`.
"""

from services.scheduler.core.books import Books
from services.scheduler.core.line import Waiter
from services.scheduler.core.plan import Plan, Resident, Wanted, plan, victims
from services.scheduler.core.scan import Scan
from services.scheduler.core.sets import Rules
from services.scheduler.core.settings import ModelRule
from services.scheduler.core.state import Model, Need
from services.scheduler.core.values import (
    AskLease,
    CancelLoad,
    Cause,
    Effect,
    StartUnload,
    State,
    Tier,
)

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
"""… and one that found nobody to leave after this."""
_MOST_NEEDS = 4
"""So many models at once have others leave for them: it is their turn first in any case."""
_IDLE_DRAIN_MS = 1_000
"""For work that slips in while an idle model is being unloaded."""
_PLENTY_MIB = 1 << 40
_NO_RULE = ModelRule()


class Residency:
    """Asks for memory, in order of urgency, and has models leave."""

    def __init__(self, books: Books, scan: Scan) -> None:
        self._books = books
        self._scan = scan

    def run(self, now_ms: int, out: list[Effect]) -> None:
        """Do what can be done for the models that are waited for and do not serve."""
        claims = self._books.claims = []
        promised_mib, pressing = 0, 0
        for model, first in self._wanted(now_ms):
            need = model.need
            claim_mib = self._settle(now_ms, model, need, out) if need is not None else 0
            if need is not None and claim_mib:
                claims.append((-need.rank, need.order, claim_mib))
            if model.asking:
                return  # 2: one question at a time
            if first.rank == Tier.BACKGROUND and pressing:
                return  # 0d: what it loaded would only be given up
            pressing += need is not None
            if not self._may_ask(now_ms, model):
                promised_mib += claim_mib  # 2e
            elif self._rules_forbid(model.key):
                self._ask_later(now_ms, model, ASK_AGAIN_MS)
                self._make_room(now_ms, model, first, _PLENTY_MIB, out)
            elif self._ask(now_ms, model, first, promised_mib, pressing, out):
                return

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
        resident_mib, leave_mib = model.facts.resident_mib, self._peak_beside(model) + promised_mib
        model.promised_mib = promised_mib
        room_mib = self._books.room_for(now_ms, first.rank)
        if room_mib is not None and resident_mib + leave_mib > room_mib:
            if pressing > _MOST_NEEDS:
                self._ask_later(now_ms, model, ASK_AGAIN_MS)
                return False
            self.denied(now_ms, model, first, room_mib, out)
            return False
        model.asking, model.asked_ms, model.asked_rank = True, now_ms, first.rank
        model.for_others = leave_mib > model.facts.peak_mib
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

    def drop_need(self, model: Model) -> None:
        """Its memory is there, or wanted no more: who was marked for it goes on."""
        need, model.need = model.need, None
        for key in need.victims if need is not None else ():
            victim = self._books.models.get(key)
            if victim is not None and victim.wanted_by == model.key:
                _unmark(victim)

    def plan_for(self, now_ms: int, key: str, tier: Tier, headroom_mib: int) -> Plan:
        """Who would leave for a model if it were asked for now. Changes nothing."""
        model = self._books.models[key]
        need = Need(tier, (now_ms, 0), now_ms + self._books.settings.max_swap_delay_ms, 0)
        idle = plan(*self._question(now_ms, model, need, headroom_mib, busy_too=False))
        if idle.feasible:
            return idle
        return plan(*self._question(now_ms, model, need, headroom_mib, busy_too=True))

    def order_of_eviction(self, now_ms: int) -> list[tuple[str, float]]:
        """Models that may leave for somebody of the free tier, the first to go first, with what
        their eviction weighs."""
        need = Need(Tier.FREE, (now_ms, 0), now_ms, 0)
        residents = self._residents(now_ms, "", need, busy_too=False)
        free = [r for r in residents if not r.bar]
        free.sort(key=lambda r: (r.weight, -r.idle_ms, r.key))
        return [(r.key, r.eviction_cost * r.lateness * r.reload_ms / 1_000) for r in free]

    def rule(self, key: str) -> ModelRule:
        """What is configured about a model."""
        return self._books.settings.rules.get(key, _NO_RULE)

    # -- who wants memory --------------------------------------------------------------------

    def _wanted(self, now_ms: int) -> list[tuple[Model, Waiter]]:
        """Models that lack something for somebody, the most urgent first."""
        books = self._books
        wanted = []
        for key in list(books.unsettled):
            model = books.models.get(key)
            first = self._first_that_lacks(key, model)
            lacks = model is None or not model.serves or model.short or _could_grow(model)
            if first is None and model is not None:
                model.thirst = 0
            if first is None or not lacks:
                books.unsettled.discard(key)
                if model is not None:
                    self._note_vacated(now_ms, model, wanted=first is not None)
                    self.drop_need(model)
            elif model is not None and not books.holds.closed(first.lane.name):
                wanted.append((-first.rank, first.order, model, first))
        wanted.sort(key=lambda entry: entry[:2])
        return [(model, first) for _, _, model, first in wanted]

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
            return _could_grow(model) and not model.starting
        if not model.loadable(now_ms):
            return False
        need = model.need
        return need is None or not any(self._is_leaving(key, model.key) for key in need.victims)

    def _first_that_lacks(self, key: str, model: Model | None) -> Waiter | None:
        if model is None or not model.short:
            return self._books.room.first(key)
        refused = self._books.room.get(model.short_for)
        if refused is None:
            model.short = 0  # it left; who needs as much may ask for it
        return refused

    def _note_vacated(self, now_ms: int, model: Model, *, wanted: bool) -> None:
        """Its requests may ask again; if they do at once, the device may not show it yet."""
        going = model.need.victims if model.need is not None else ()
        if not wanted:
            model.vacated_ms = 0
        elif going and not self._resident_of(going):
            model.vacated_ms = model.vacated_ms or now_ms

    def _resident_of(self, keys: tuple[str, ...]) -> list[Model]:
        models = (self._books.models.get(key) for key in keys)
        return [model for model in models if model is not None and model.resident]

    def _is_leaving(self, key: str, wanted_by: str) -> bool:
        victim = self._books.models.get(key)
        return victim is not None and victim.leaving and victim.wanted_by == wanted_by

    def _rules_forbid(self, key: str) -> bool:
        rules = self._books.settings.sets
        if rules is None:
            return False
        residents = {m.key for m in self._books.models.values() if m.resident} | {key}
        return not rules.allows(residents)

    def _peak_beside(self, model: Model) -> int:
        """The largest peak that a request may add once the model is resident."""
        others = (m for m in self._books.models.values() if m.resident or m is model)
        return max((_peak_left(m) for m in others), default=0)

    # -- who leaves --------------------------------------------------------------------------

    def _make_room(
        self, now_ms: int, model: Model, first: Waiter, headroom_mib: int, out: list[Effect]
    ) -> None:
        """2: plan with idle models alone; only if that is not enough, with busy ones."""
        if model.vacated_ms and now_ms < model.vacated_ms + _SETTLE_MS:
            return  # they have left, and the device may not show it yet
        if self._plan_stands(now_ms, model.need, first):
            return
        due_ms = first.order[0] + self._books.settings.max_swap_delay_ms
        need = Need(first.rank, first.order, due_ms, self._amount_of(model, first))
        if (parent := self._books.permits.out.get(first.request.parent)) is not None:
            need.rank, need.spared = parent.rank, parent.model
        chosen = self._victims(now_ms, model, need, headroom_mib)
        self.drop_need(model)
        need.victims, need.planned_ms = chosen, now_ms
        model.need = need
        self._books.unsettled.add(model.key)
        if need.victims:
            model.vacated_ms = 0
            self._settle(now_ms, model, need, out)
        elif model.vacated_ms:
            self._give_up_waiting(now_ms, model, out)

    def _give_up_waiting(self, now_ms: int, model: Model, out: list[Effect]) -> None:
        """3: nobody else can leave, and the device has not shown what the others gave back."""
        within_ms = self._books.settings.memory_back_ms
        if model.vacated_ms < self._books.lent_ms:
            model.vacated_ms = 0  # it was there, and somebody else has it
        elif now_ms >= model.vacated_ms + within_ms:
            self.drop_need(model)
            model.vacated_ms = 0
            why = f"models left for it, and the device shows no free memory after {within_ms} ms"
            self._books.refuse_all(now_ms, out, model.key, Cause.MODEL_FAILED, why, within_ms)

    def _amount_of(self, model: Model, first: Waiter) -> int:
        if not model.short:
            return model.facts.resident_mib
        return first.need_mib

    def _plan_stands(self, now_ms: int, need: Need | None, first: Waiter) -> bool:
        """Those who were to leave are still to, and a better plan is looked for in a while."""
        if need is None or need.order != first.order:
            return False
        if not need.victims:
            return now_ms < need.planned_ms + _NO_PLAN_AGAIN_MS
        if now_ms >= need.planned_ms + _PLAN_AGAIN_MS:
            return False
        return len(self._resident_of(need.victims)) == len(need.victims)

    def _victims(self, now_ms: int, model: Model, need: Need, headroom_mib: int) -> tuple[str, ...]:
        for busy_too in (False, True):
            question = self._question(now_ms, model, need, headroom_mib, busy_too=busy_too)
            if (found := victims(*question)) is not None:
                return found
        return ()

    def _question(
        self, now_ms: int, model: Model, need: Need, headroom_mib: int, *, busy_too: bool
    ) -> tuple[Wanted, list[Resident], int, Rules | None, int]:
        """What the planner is asked."""
        amount_mib = need.amount_mib or model.facts.resident_mib
        wanted = Wanted(model.key, amount_mib, _peak_left(model), transient=model.short > 0)
        residents = self._residents(now_ms, model.key, need, busy_too=busy_too)
        if model.short:
            residents.append(self._resident(now_ms, model, ""))
        sets = self._books.settings.sets
        return wanted, residents, headroom_mib, sets, self._leaving_mib(model)

    def _leaving_mib(self, wanting: Model) -> int:
        """Memory on its way back that nobody is waiting for."""
        return sum(
            _held_mib(m)
            for m in self._books.models.values()
            if m.leaving and m.wanted_by in ("", wanting.key) and m.resident
        )

    def _residents(
        self, now_ms: int, wanting: str, need: Need, *, busy_too: bool
    ) -> list[Resident]:
        return [
            self._resident(now_ms, model, self._bar(now_ms, model, need, busy_too=busy_too))
            for key, model in self._books.models.items()
            if key != wanting
            and model.resident
            and not model.leaving
            and self._may_be_taken(model, wanting, need)
        ]

    def _resident(self, now_ms: int, model: Model, bar: str) -> Resident:
        return Resident(
            model.key,
            _held_mib(model),
            _peak_left(model),
            self.rule(model.key).eviction_cost,
            now_ms - model.last_used_ms,
            model.expected_load_ms,
            bar,
        )

    def _bar(self, now_ms: int, model: Model, need: Need, *, busy_too: bool) -> str:
        """Why it may not leave for this need; empty: it may."""
        if never := self._bar_always(model, need):
            return never
        if model.loading:
            return self._bar_of_load(model, need)
        if model.pinned_by and not self._pin_yields(model, need):
            return "was loaded for a request that still waits"  # 0e
        if need.rank == Tier.BACKGROUND and self._too_lately(now_ms, model):
            return "was used too lately for the background"  # 0d
        return "" if busy_too else self._bar_of_use(now_ms, model, need)

    def _bar_always(self, model: Model, need: Need) -> str:
        if self.rule(model.key).pinned:
            return "is pinned by the configuration"
        if model.key == need.spared:
            return "runs the request that this one is for"  # 0f
        return "" if model.reachable else "is hosted by a service that does not answer"

    def _bar_of_use(self, now_ms: int, model: Model, need: Need) -> str:
        if model.running:
            return f"runs {model.running}"
        if not self._idle(now_ms, model, need):
            return "has just been used, or requests wait that it may take first"
        return ""

    def _too_lately(self, now_ms: int, model: Model) -> bool:
        quiet_ms = self._books.settings.background_quiet_ms
        return model.running > 0 or now_ms < model.last_used_ms + quiet_ms

    def _pin_yields(self, model: Model, need: Need) -> bool:
        """Its waiter may itself wait for what the need waits for, and both for ever."""
        waiter = self._books.room.get(model.pinned_by)
        if waiter is None or self._books.holds.closed(waiter.lane.name):
            return True
        if waiter.rank == Tier.BACKGROUND and need.rank > Tier.BACKGROUND:
            return True  # 0d
        return model.thirst > 0 and (-need.rank, need.order) < (-waiter.rank, waiter.order)

    def _bar_of_load(self, model: Model, need: Need) -> str:
        first = self._books.room.first(model.key)
        if first is None or (first.rank == Tier.BACKGROUND and need.rank > Tier.BACKGROUND):
            return ""  # 0d: its load is given up
        return "is being loaded"

    # -- having them leave -------------------------------------------------------------------

    def _settle(self, now_ms: int, model: Model, need: Need, out: list[Effect]) -> int:
        """2a, 2d: have the victims leave together, when they may; until then mark them.

        Answers what of the headroom there is, in MiB, has to be left for the need (2e).
        """
        going = [v for v in self._resident_of(need.victims) if self._goes_for(v, model, need)]
        if need.victims and not going:
            model.vacated_ms = model.vacated_ms or now_ms
        staying = [v for v in going if not (v.leaving and v.wanted_by == model.key)]
        for victim in staying:
            self._mark(now_ms, victim, model, need)
        if all(self._idle(now_ms, v, need) or self._must_go(now_ms, v, need) for v in staying):
            for victim in staying:
                self._dismiss(victim, model, out)
        # What those hold who have begun to leave comes at any moment, and is for nobody else.
        to_come_mib = sum(_held_mib(victim) for victim in going if not victim.leaving)
        has_claim = bool(going) or model.vacated_ms > 0
        return max(0, need.amount_mib - to_come_mib) if has_claim else 0

    def _goes_for(self, victim: Model, model: Model, need: Need) -> bool:
        """Unless it is wanted for somebody more urgent, or has gone and comes back for another."""
        if not victim.reachable:
            return False  # it is gone, or will report
        if victim.loading and not victim.leaving and self._bar_of_load(victim, need):
            return False
        return self._may_be_taken(victim, model.key, need)

    def _may_be_taken(self, victim: Model, wanting: str, need: Need) -> bool:
        """Nobody wants its memory, or nobody as urgent does and it has not begun to leave."""
        if victim.wanted_by in ("", wanting):
            return True
        other = self._books.models.get(victim.wanted_by)
        if other is None or other.need is None:
            return not victim.leaving
        less_urgent = (-need.rank, need.order) < (-other.need.rank, other.need.order)
        return less_urgent and not victim.leaving

    def _mark(self, now_ms: int, victim: Model, model: Model, need: Need) -> None:
        victim.wanted_by = model.key
        victim.least_rank = need.rank
        victim.before = need.order if now_ms >= need.due_ms else None
        if victim.before is None:
            self._books.look_at(need.due_ms, model.key)

    def _idle(self, now_ms: int, victim: Model, need: Need) -> bool:
        """2d: nothing runs on it, and nobody waits whom it may take before it goes."""
        if victim.loading:
            return True
        if victim.running:
            return False
        before = need.order if now_ms >= need.due_ms else None
        if self._scan.would_take(victim, need.rank, before):
            return False
        return self._lingered(now_ms, victim, need)

    def _lingered(self, now_ms: int, victim: Model, need: Need) -> bool:
        until_ms = min(victim.last_used_ms + self._books.settings.linger_ms, need.due_ms)
        if now_ms < until_ms and need.rank <= victim.last_rank:
            self._books.look_at(until_ms, victim.key)
            return False
        return True

    def _must_go(self, now_ms: int, victim: Model, need: Need) -> bool:
        """What runs on it is to end: it is of lower tiers, or the delay is over."""
        if not victim.running:
            return False
        due = now_ms >= need.due_ms
        if self._scan.would_take(victim, need.rank, need.order if due else None):
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
            victim.given_up = True
            out.append(CancelLoad(victim.key, why))
        elif victim.running:
            out.append(StartUnload(victim.key, self._books.settings.drain_ms, True, why))
        else:
            out.append(StartUnload(victim.key, _IDLE_DRAIN_MS, False, why))


def tier_of(waiter: Waiter) -> Tier:
    """The tier that a waiter's lease is asked under."""
    return Tier(min(waiter.rank, Tier.PAID))


def _unmark(model: Model) -> None:
    model.wanted_by = ""
    model.least_rank = 0
    model.before = None


def _held_mib(model: Model) -> int:
    return model.facts.resident_mib * max(1, len(model.instances))


def _peak_left(model: Model) -> int:
    return max(0, model.facts.peak_mib - model.transient_mib)


def _could_grow(model: Model) -> bool:
    """All its places are taken, and it may have a further instance."""
    if not model.serves or model.open or model.short:
        return False
    return len(model.instances) < model.facts.max_instances
