"""The life of a permit: granted → seen by its engine → stream closed and engine done → free. Pure.

The core never guesses: it asks the engine (`AskEngine`) whenever the two do not agree.
"""

from services.scheduler.core.alarms import Alarm
from services.scheduler.core.books import Books
from services.scheduler.core.roster import Roster
from services.scheduler.core.state import Permit
from services.scheduler.core.values import (
    AskEngine,
    Cause,
    Effect,
    HoldChanged,
    Refuse,
    Request,
    ReturnLease,
    Tier,
)


class Running:
    """What becomes of permits that are out."""

    def __init__(self, books: Books, roster: Roster) -> None:
        self._books = books
        self._roster = roster

    def seen(self, now_ms: int, permit_id: str, key: str, instance_id: str) -> bool:
        """An engine runs the request; whether a model waits to leave until that is known.

        One that is not out ran before our restart, or is over.
        """
        permit = self._books.permits.out.get(permit_id)
        if permit is None:
            if not self._books.permits.is_over(permit_id):
                self._adopt(now_ms, permit_id, key, instance_id)
            return False
        permit.seen = True
        model = self._books.models.get(permit.model)
        return model is not None and bool(model.wanted_by)

    def over(self, now_ms: int, permit: Permit, out: list[Effect]) -> None:
        """Its engine says that nothing runs under it, nor ever will."""
        permit.engine_over = True
        if permit.adopted:
            self._release(now_ms, permit, out)
        elif not permit.stream_closed and not permit.seen:
            # Only a lapsed grant is asked about while its stream is open.
            out.append(Refuse(permit.name, Cause.GRANT_LAPSED, "", 0))
            self._release(now_ms, permit, out)
        elif permit.stream_closed:
            self._release(now_ms, permit, out)

    def closed(self, now_ms: int, permit: Permit, out: list[Effect]) -> None:
        """Its caller is done with it, or is made to be: ask the engine, or free it."""
        permit.stream_closed = True
        if permit.engine_over:
            self._release(now_ms, permit, out)
        elif not permit.asked:
            permit.asked = True
            out.append(AskEngine(permit.name, permit.address, only_if_not_started=False))

    def unused(self, permit: Permit, out: list[Effect]) -> None:
        """The time to use it has passed; from here on its run is limited."""
        self._books.alarms.set(permit.granted_ms + permit.max_run_ms, Alarm.RAN, permit)
        if not permit.seen and not permit.asked:
            out.append(AskEngine(permit.name, permit.address, only_if_not_started=True))

    def ran_too_long(self, now_ms: int, permit: Permit, out: list[Effect]) -> None:
        """Its lane does not allow more."""
        if not permit.stream_closed and not permit.adopted:
            out.append(Refuse(permit.name, Cause.RUN_TOO_LONG, permit.lane))
        permit.asked = False  # whatever became of an earlier question
        self.closed(now_ms, permit, out)

    def hold_state(self, lane: str, holder: str) -> HoldChanged:
        """How far a held lane has drained."""
        books = self._books
        return HoldChanged(lane, holder, books.running_in(lane), books.holds.until(lane, holder))

    def _release(self, now_ms: int, permit: Permit, out: list[Effect]) -> None:
        books, client = self._books, permit.client
        ran_ms, cost = now_ms - permit.granted_ms, permit.cost
        if calls := books.room.calls.get(permit.request.permit_id):
            for waiter in list(calls.values()):  # 0f: they have nothing to run under
                books.refuse(now_ms, out, waiter, Cause.PARENT_OVER)
        heir = books.permits.release(permit)
        if heir is not None:  # it pays for what it has inherited from now on only
            heir.charged_ms += cost * (now_ms - heir.granted_ms)
        if permit.seen and not permit.adopted:
            books.runs.add(permit.lane, permit.model, ran_ms)
        client.running -= 1
        if books.settings.fairness.soft_inflight:
            books.room.count_in_flight(permit.model, client.key, -1)
        books.clients.charge(client, cost * ran_ms - permit.charged_ms)
        books.clients.settle(now_ms, client)
        if permit.lease_id:
            out.append(ReturnLease(permit.lease_id))
        self._roster.vacated(now_ms, permit)
        if books.holds:
            out += [self.hold_state(permit.lane, who) for who in books.holds.of(permit.lane)]

    def _adopt(self, now_ms: int, permit_id: str, key: str, instance_id: str) -> None:
        books = self._books
        model = books.models.get(key)
        lane = books.settings.lane_of(model.facts.lane if model is not None else "")
        request = Request(permit_id, key, Tier.FREE, now_ms, lane.name)
        client = books.clients.enter(now_ms, "")
        permit = Permit(request, key, Tier.FREE, min(lane.cost, books.permits.total), lane, client)
        permit.seen = permit.adopted = True
        permit.granted_ms = now_ms
        permit.instance_id = instance_id
        if model is not None:
            permit.address = model.found_running(instance_id)
        books.permits.take(permit.cost, permit.rank)
        books.permits.hold(permit)
        client.running += 1
        if books.settings.fairness.soft_inflight:
            books.room.count_in_flight(key, client.key, 1)
        books.alarms.set(now_ms + lane.max_run_ms, Alarm.RAN, permit)
