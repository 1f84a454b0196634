"""The models that there are, as their services report them; when they go by themselves. Pure."""

from dataclasses import replace

from services.scheduler.core.books import Books
from services.scheduler.core.leaving import Leaving
from services.scheduler.core.sets import Rules
from services.scheduler.core.settings import ModelRules
from services.scheduler.core.state import Model, Permit
from services.scheduler.core.values import (
    Cause,
    Departure,
    Effect,
    Grant,
    Loading,
    ModelFacts,
    StartUnload,
    State,
)

_UNLOAD_DRAIN_MS = 1_000
_PAUSE_MS = 100
"""Between two questions about a lease, where it is the end of requests that gives rise to them."""
_HOLDS_NOTHING = (State.COLD, State.FAILED)


class Roster:
    """Keeps the books of models true."""

    def __init__(self, books: Books, leaving: Leaving) -> None:
        self._books = books
        self._leaving = leaving

    def reported(self, now_ms: int, facts: ModelFacts, out: list[Effect]) -> bool:
        """Its service says how a model stands; False: nothing but how far its load is."""
        books, state = self._books, facts.state
        known = books.models.get(facts.key)
        model = known or self._appeared(now_ms, facts)
        resized = known is None or model.facts.peak_mib != facts.peak_mib
        before, model.reachable = model.facts.state, True
        if state in _HOLDS_NOTHING:
            # One whose load was given up has left when its load has ended.
            model.leaving, model.short = model.leaving and model.starting, 0
        model.reported(facts)
        if known is None:
            self._find_running(model)
        if books.room.waiting_for(facts.key):
            books.unsettled.add(facts.key)
            if resized:
                books.size_up(facts.key)
        if state is not before:
            self._changed(now_ms, model)
        if state is State.LOADING:
            self._loading(now_ms, model, before, out)
        if facts.removed:  # 6
            self._dismissed(model)
        elif wait_ms := model.cooling_ms(now_ms):  # 3
            books.refuse_all(now_ms, out, facts.key, Cause.MODEL_FAILED, facts.failure, wait_ms)
        news = resized or state is not before or facts.removed
        return news or state is not State.LOADING

    def _appeared(self, now_ms: int, facts: ModelFacts) -> Model:
        model = self._books.models[facts.key] = Model(replace(facts, state=State.COLD))
        model.last_used_ms = now_ms
        return model

    def _find_running(self, model: Model) -> None:
        """It may have been configured before, and what ran on it then runs on."""
        for permit in self._books.permits.out.values():
            if permit.model == model.key:
                model.found_running(permit.instance_id)

    def _changed(self, now_ms: int, model: Model) -> None:
        books, state = self._books, model.facts.state
        books.changes += 1
        if state is State.READY:
            model.last_used_ms = now_ms
            self._look_when_unused(now_ms, model)
            if not model.pinned_by and (first := books.room.first(model.key)) is not None:
                model.pinned_by, model.pin_inherited = first.name, True  # 0e
        if state in _HOLDS_NOTHING:
            books.freed_ms = now_ms
            books.memory_may_be_back()

    def removed(self, now_ms: int, key: str) -> None:
        """A model is not configured any more, and nothing is left of it (6)."""
        model = self._books.models.pop(key, None)
        if model is None:
            return
        self._dismissed(model)
        if model.resident:
            self._books.freed_ms = now_ms
        self._books.changes += 1
        self._books.memory_may_be_back()

    def _dismissed(self, model: Model) -> None:
        """Nobody leaves for it any more."""
        self._leaving.drop(model)
        self._books.unsettled.discard(model.key)

    def ruled_anew(self, now_ms: int, rules: ModelRules, sets: Rules | None) -> None:
        """The rules about models have changed: who may leave, and when the unused go."""
        self._books.settings = replace(self._books.settings, rules=rules, sets=sets)
        self._books.changes += 1
        self._books.memory_may_be_back()
        for model in self._books.models.values():
            if model.serves and not model.running:
                self._look_when_unused(now_ms, model)

    def lost(self, key: str) -> None:
        """The service of a model does not answer: nothing is granted or loaded there."""
        model = self._books.models.get(key)
        if model is None:
            return
        model.reachable = model.starting = model.leaving = False
        model.refresh()
        if self._books.room.waiting_for(key):
            self._books.unsettled.add(key)

    def leaves(self, model: Model) -> None:
        """It is being unloaded, and takes nothing new."""
        model.leaving = True
        model.refresh()
        if self._books.room.waiting_for(model.key):
            self._books.unsettled.add(model.key)

    def stays(self, model: Model) -> None:
        """Its unload has ended; its reports say how."""
        model.leaving = model.leaving and model.loading
        model.refresh()
        self._books.changes += 1
        self._books.memory_may_be_back()

    def vacated(self, now_ms: int, permit: Permit) -> None:
        """A request that ran is over."""
        model = self._books.models.get(permit.model)
        if model is None:
            return
        if permit.lease_mib:
            model.transient_mib -= permit.lease_mib
            self._books.freed_ms = now_ms
        model.vacate(permit.instance_id)
        model.last_used_ms, model.last_rank = now_ms, permit.rank
        if model.running == 0:
            self._look_when_unused(now_ms, model)
        if self._books.unsettled and (model.running == 0 or permit.lease_id):
            self._books.memory_may_be_back(pause_ms=_PAUSE_MS)

    def grant_loads(self, now_ms: int, out: list[Effect]) -> None:
        """Who only wants a model loaded has what they want as soon as it serves."""
        models = self._books.models
        served = [key for key in self._books.loads if key in models and models[key].serves]
        for key in served:
            for waiter in list(self._books.loads[key].values()):
                self._books.forget(now_ms, waiter)
                waited_ms = now_ms - waiter.request.arrived_ms
                out.append(Grant(waiter.name, key, "", "", waited_ms, 0))
            self.used(now_ms, models[key])

    def used(self, now_ms: int, model: Model) -> None:
        """Somebody wanted it resident, and it is."""
        model.last_used_ms = now_ms
        self._look_when_unused(now_ms, model)

    def look(self, now_ms: int, key: str, out: list[Effect]) -> None:
        """The time has come to look at a model again."""
        model = self._books.models.get(key)
        if model is None:
            return
        if now_ms >= model.ask_again_ms:
            model.short = 0
        self._unload_unused(now_ms, model, out)

    def _loading(self, now_ms: int, model: Model, before: State, out: list[Effect]) -> None:
        if before is not State.LOADING and not model.starting:
            model.load_began_ms = now_ms
        progress = max((i.facts.progress for i in model.instances.values()), default=0.0)
        waiting = self._books.room.of(model.key)
        out += [Loading(waiter.name, model.key, progress) for waiter in waiting]

    def _look_when_unused(self, now_ms: int, model: Model) -> None:
        ttl_ms = self._books.rule(model.key).idle_ttl_ms
        if ttl_ms:
            self._books.look_at(max(now_ms, model.last_used_ms + ttl_ms), model.key)

    def _unload_unused(self, now_ms: int, model: Model, out: list[Effect]) -> None:
        ttl_ms = self._books.rule(model.key).idle_ttl_ms
        if not ttl_ms or not model.serves or model.starting or model.running:
            return
        unused_ms = now_ms - model.last_used_ms
        if unused_ms < ttl_ms or self._books.room.waiting_for(model.key):
            self._books.look_at(now_ms + max(ttl_ms - unused_ms, 1_000), model.key)
            return
        self.leaves(model)
        why = f"unused for {unused_ms // 1_000} s"
        out.append(StartUnload(model.key, _UNLOAD_DRAIN_MS, False, why, Departure.UNUSED))
