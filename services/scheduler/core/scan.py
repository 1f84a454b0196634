"""The permit scan: who runs next. Pure. Rules 0a to 0f of `scheduler`, by their numbers."""

from typing import NamedTuple

from services.scheduler.core.alarms import Alarm
from services.scheduler.core.books import Books
from services.scheduler.core.line import Order, Waiter
from services.scheduler.core.queue import CHILD, LOAD_LANE, Bench
from services.scheduler.core.state import Instance, Model, Permit
from services.scheduler.core.values import AskTransient, Effect, Grant, State, Tier

_NEVER_MS = 1 << 62
_RANKS = tuple(range(CHILD, 0, -1))
_UNUSED = Alarm.UNUSED
_BACKGROUND = Tier.BACKGROUND


class Coming(NamedTuple):
    """A model that is on its way for a waiter, for whom permits are kept (0a)."""

    rank: int
    cost: int
    ends_ms: int


class Scan:
    """Gives permits out."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._frozen: list[Waiter | None] = [None] * (CHILD + 1)
        """By rank: who lacked permits first, and is passed by nobody of that rank (0c)."""
        self.stopped_at = 0
        """Rank of the head that lacks permits; 0: nobody waits for permits alone."""

    def unchanged_by(self, waiter: Waiter) -> bool:
        """The newcomer comes after a head that lacks permits: there is nothing to decide."""
        return waiter.rank <= self.stopped_at

    def run(self, now_ms: int, out: list[Effect]) -> None:
        """Grant what may run now."""
        self.stopped_at = 0
        books = self._books
        coming = self._coming(now_ms) if books.unsettled else ()
        benches = books.room.benches
        for rank in _RANKS:
            while benches[rank] and (head := self.head(rank)) is not None:
                if rank == _BACKGROUND and self._somebody_else():
                    return  # 0d
                if not self._enough(now_ms, head, coming):
                    self._frozen[rank] = head  # 0c
                    self.stopped_at = rank
                    return
                self._take(now_ms, head, out)

    def newcomer(self, now_ms: int, waiter: Waiter, out: list[Effect]) -> None:
        """`run`, when nothing else has changed: nobody else above `stopped_at` can be granted,
        unless the newcomer takes the last place, for which the head had been waiting too."""
        if not self._stands(waiter):
            return
        if waiter.cost > self._books.permits.free and waiter.cost:
            self._frozen[waiter.rank] = waiter
            self.stopped_at = waiter.rank
            return
        self._take(now_ms, waiter, out)
        if self.stopped_at and not self._books.models[waiter.model].open:
            self.run(now_ms, out)

    def head(self, rank: int) -> Waiter | None:
        """Who of a rank stands in the scan and is next (0a, 0b); the frozen one, if there is."""
        frozen = self._frozen[rank]
        if frozen is not None:
            if frozen.rank != rank or not frozen.waits:
                self._frozen[rank] = None
            elif frozen.line is not None and self._stands(frozen):
                return frozen
        best: Waiter | None = None
        models = self._books.models
        for bench in self._books.room.benches[rank].values():
            model = models.get(bench.model)
            if model is None or not model.open or rank < model.least_rank:
                continue
            limit = model.before if rank == model.least_rank else None
            waiter = self._first_of(bench, model.short, limit)
            if waiter is None:
                continue
            virtual_ms = waiter.client.virtual_ms
            if best is None or (virtual_ms, waiter.order) < (best.client.virtual_ms, best.order):
                best = waiter
        return best

    def would_take(self, model: Model, least_rank: int, before: Order | None, short: int) -> bool:
        """Somebody waits whom the model would still take, if it took those ranks and of the least
        of them only who came before; nobody who needs `short` MiB or more (0: all)."""
        for rank in range(CHILD, least_rank - 1, -1):
            bench = self._books.room.benches[rank].get(model.key)
            if bench is not None:
                limit = before if rank == least_rank else None
                if self._first_of(bench, short, limit) is not None:
                    return True
        return False

    def grant(self, now_ms: int, waiter: Waiter, instance: Instance, out: list[Effect]) -> Permit:
        """Let a waiter run; its permits and place have been taken."""
        books, request = self._books, waiter.request
        waiter.instance = None
        books.room.remove(waiter)
        model, lane, facts = books.models[waiter.model], waiter.lane, instance.facts
        if model.pinned_by == request.permit_id:
            books.unpin(model)
        model.note_use(now_ms)
        permit = Permit(request, waiter.model, waiter.runs_as, waiter.cost, lane, waiter.client)
        permit.granted_ms = now_ms
        permit.instance_id, permit.address = facts.instance_id, facts.address
        if request.parent:
            permit.parent = books.permits.out.get(request.parent)
        books.permits.hold(permit)
        client = waiter.client
        client.running += 1
        if books.settings.fairness.soft_inflight:
            books.room.count_in_flight(waiter.model, client.key, 1)
        permit.charged_ms = permit.cost * books.runs.mean_ms(lane.name, waiter.model)
        books.clients.charge(client, permit.charged_ms)
        within_ms = min(books.settings.use_within_ms, lane.max_run_ms)
        books.alarms.set(now_ms + within_ms, _UNUSED, permit)
        waited_ms = now_ms - request.arrived_ms
        out.append(
            Grant(
                request.permit_id,
                waiter.model,
                facts.address,
                facts.instance_id,
                waited_ms,
                lane.max_run_ms,
            )
        )
        return permit

    # -- the rules ---------------------------------------------------------------------------

    def _stands(self, waiter: Waiter) -> bool:
        model = self._books.models.get(waiter.model)
        if model is None or not model.open or waiter.rank < model.least_rank:
            return False
        assert waiter.line is not None  # noqa: S101 - who stands aside does not stand
        if waiter.gate in self._books.holds.lanes:
            return False
        if model.short and waiter.line.size >= model.short:
            return False
        return model.before is None or _in_time(waiter, model.least_rank, model.before)

    def _first_of(self, bench: Bench, short: int, before: Order | None) -> Waiter | None:
        """Who is next of those that need less than there was too little of, and came before."""
        held = self._books.holds.lanes
        if len(bench.lines) == 1:
            (line,) = bench.lines.values()
            if line.lane in held or line.lane == LOAD_LANE or (short and line.size >= short):
                return None
            return line.head() if before is None else line.head_before(before)
        best: Waiter | None = None
        best_key: tuple[bool, float, Order] | None = None
        for line in bench.lines.values():
            if line.lane in held or line.lane == LOAD_LANE or (short and line.size >= short):
                continue
            head = line.head() if before is None else line.head_before(before)
            if head is None:
                continue
            key = (line.capped(head.client), head.client.virtual_ms, head.order)
            if best_key is None or key < best_key:
                best, best_key = head, key
        return best

    def _enough(self, now_ms: int, waiter: Waiter, coming: "tuple[Coming, ...]") -> bool:
        cost, permits = waiter.cost, self._books.permits
        free = permits.total - permits.in_use
        if cost > free and cost:
            return False
        if not coming:
            return True
        kept, ends_ms = 0, _NEVER_MS
        for other in coming:
            if other.rank > waiter.rank:
                kept += other.cost
                ends_ms = min(ends_ms, other.ends_ms)
        if not kept or not cost or cost + min(kept, self._books.permits.total) <= free:
            return True
        p90_ms = self._books.runs.p90_ms(waiter.lane.name, waiter.model)
        return p90_ms is not None and now_ms + p90_ms <= ends_ms

    def _coming(self, now_ms: int) -> "tuple[Coming, ...]":
        found = []
        for key in self._books.unsettled:
            model = self._books.models.get(key)
            if model is None or not _on_its_way(model):
                continue
            first = self._books.room.first_that_costs(key)
            if first is None:
                continue
            began_ms = model.load_began_ms if model.loading else now_ms
            found.append(Coming(first.rank, first.cost, began_ms + model.expected_load_ms))
        return tuple(found)

    def _somebody_else(self) -> bool:
        above = sum(self._books.room.counts[Tier.BACKGROUND + 1 :])
        return above > 0 or self._books.permits.foreground > 0

    def _take(self, now_ms: int, waiter: Waiter, out: list[Effect]) -> None:
        """Grant, or first ask for the memory that the request needs beside its model's."""
        books, request = self._books, waiter.request
        self._frozen[waiter.rank] = None
        model = books.models[waiter.model]
        instance = model.pick()
        model.occupy(instance)
        if waiter.rank == CHILD:
            waiter.runs_as = self._rank_of_run(waiter)
        books.permits.take(waiter.cost, waiter.runs_as)
        if not waiter.need_mib:
            self.grant(now_ms, waiter, instance, out)
            return
        waiter.instance = instance
        books.room.step_aside(waiter)
        preferred = request.preferred_mib or max(model.facts.peak_mib, waiter.need_mib)
        tier = Tier(waiter.runs_as)
        leave_mib = self._claimed_before(waiter, model) if books.claims else 0  # 2e
        waiter.asked_leave_mib = leave_mib
        out.append(
            AskTransient(waiter.name, waiter.model, preferred, waiter.need_mib, tier, leave_mib)
        )

    def _claimed_before(self, waiter: Waiter, model: Model) -> int:
        """What is spoken for by those who are more urgent than whoever waits for the model: its
        waiters take each other's turns, and the memory that is there for one is for all."""
        order = waiter.order
        for other in (self._books.room.first(model.key), self._books.room.get(model.pinned_by)):
            if other is not None and other.rank >= waiter.rank:
                order = min(order, other.order)
        return self._books.claimed_before(waiter.rank, order)

    def _rank_of_run(self, waiter: Waiter) -> int:
        """The tier that its run counts in: a child's is its parent's (0f)."""
        if waiter.rank != CHILD:
            return waiter.rank
        parent = self._books.permits.out.get(waiter.request.parent)
        return parent.rank if parent is not None else Tier.FREE


def _in_time(waiter: Waiter, least_rank: int, before: Order | None) -> bool:
    """Nobody passes the one that a model has to leave for, once that has waited long enough."""
    return before is None or waiter.rank > least_rank or waiter.order < before


def _on_its_way(model: Model) -> bool:
    if model.facts.state is State.READY:
        return False
    made_room_for = model.need is not None and bool(model.need.victims)
    return model.asking or model.loading or made_room_for
