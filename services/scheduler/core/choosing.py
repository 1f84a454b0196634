"""Who might leave for a need, and why not: what the planner is asked. Pure. Rules 0d, 0e, 0f, 2."""

from services.scheduler.core.books import Books
from services.scheduler.core.leaving import Leaving
from services.scheduler.core.plan import Plan, Resident, Wanted, plan, victims
from services.scheduler.core.sets import Rules
from services.scheduler.core.state import Model, Need
from services.scheduler.core.values import Tier


class Choosing:
    """Puts the question to the planner, and takes its answer."""

    def __init__(self, books: Books, leaving: Leaving) -> None:
        self._books = books
        self._leaving = leaving

    def victims(self, now_ms: int, model: Model, need: Need, headroom_mib: int) -> tuple[str, ...]:
        """2: of idle models alone; only if that is not enough, of busy ones. Empty: nobody."""
        for busy_too in (False, True):
            question = self._question(now_ms, model, need, headroom_mib, busy_too=busy_too)
            if (found := victims(*question)) is not None:
                return found
            self._look_when_lingered(now_ms, need)
        return ()

    def _look_when_lingered(self, now_ms: int, need: Need) -> None:
        for model in self._books.models.values():
            if model.serves:
                self._leaving.look_when_lingered(now_ms, model, need)

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
        return [(r.key, r.cost) for r in free]

    def next_quiet_ms(self, now_ms: int) -> int | None:
        """When the next of those that were used too lately for the background no longer is (0d)."""
        quiet_ms = self._books.settings.background_quiet_ms
        ends = (m.last_used_ms + quiet_ms for m in self._books.models.values() if m.resident)
        return min((end for end in ends if end > now_ms), default=None)

    def most_mib(self, model: Model, need: Need) -> int:
        """What would be to be had if all left that may ever leave, and all else ended."""
        models = self._books.models.values()
        there_mib = need.headroom_mib + sum(m.transient_mib for m in models)
        others = (m for m in models if m is not model and m.resident)
        return there_mib + sum(m.held_mib for m in others if m.key not in need.spared)

    def _question(
        self, now_ms: int, model: Model, need: Need, headroom_mib: int, *, busy_too: bool
    ) -> tuple[Wanted, list[Resident], int, Rules | None, int]:
        """What the planner is asked."""
        amount_mib = need.amount_mib or model.facts.resident_mib
        wanted = Wanted(model.key, amount_mib, model.peak_left_mib, transient=model.short > 0)
        residents = self._residents(now_ms, model.key, need, busy_too=busy_too)
        if model.short:
            residents.append(self._resident(now_ms, model, ""))
        sets = self._books.settings.sets
        return wanted, residents, headroom_mib, sets, self._leaving_mib(model)

    def _leaving_mib(self, wanting: Model) -> int:
        """Memory on its way back that nobody is waiting for."""
        return sum(
            m.held_mib
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
            and self._leaving.may_be_taken(model, wanting, need)
        ]

    def _resident(self, now_ms: int, model: Model, bar: str) -> Resident:
        return Resident(
            model.key,
            model.held_mib,
            model.peak_left_mib,
            self._books.rule(model.key).eviction_cost,
            now_ms - model.last_used_ms,
            model.expected_load_ms,
            bar,
        )

    def _bar(self, now_ms: int, model: Model, need: Need, *, busy_too: bool) -> str:
        """Why it may not leave for this need; empty: it may."""
        if never := self._bar_always(model, need):
            return never
        if model.loading:
            return self._leaving.bar_of_load(model, need)
        if model.pinned_by and not self._leaving.pin_yields(model, need):
            return "was loaded for a request that still waits"  # 0e
        if need.rank == Tier.BACKGROUND and self._too_lately(now_ms, model):
            return "was used too lately for the background"  # 0d
        return "" if busy_too else self._bar_of_use(now_ms, model, need)

    def _bar_always(self, model: Model, need: Need) -> str:
        if self._books.rule(model.key).pinned:
            return "is pinned by the configuration"
        if model.key in need.spared:
            return "runs the request that this one is for"  # 0f
        return "" if model.reachable else "is hosted by a service that does not answer"

    def _bar_of_use(self, now_ms: int, model: Model, need: Need) -> str:
        if model.running:
            return f"runs {model.running}"
        if not self._leaving.idle(now_ms, model, need):
            return "has just been used, or requests wait that it may take first"
        return ""

    def _too_lately(self, now_ms: int, model: Model) -> bool:
        quiet_ms = self._books.settings.background_quiet_ms
        return model.running > 0 or now_ms < model.last_used_ms + quiet_ms
