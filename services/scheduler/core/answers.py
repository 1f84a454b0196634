"""What becomes of what was asked for: leases of models and of requests, loads. Pure."""

from services.scheduler.core.books import Books
from services.scheduler.core.entrance import RETRY_AFTER_MS
from services.scheduler.core.leaving import Leaving
from services.scheduler.core.line import Waiter, size_of
from services.scheduler.core.residency import ASK_AGAIN_MS, Residency
from services.scheduler.core.scan import Scan
from services.scheduler.core.state import Instance, Model
from services.scheduler.core.values import Cause, Effect, Grant, ReturnLease, StartLoad, State

_LOADABLE = frozenset({State.COLD, State.FAILED, State.READY})


class Answers:
    """Takes in what brokers and model services answer."""

    def __init__(self, books: Books, scan: Scan, residency: Residency, leaving: Leaving) -> None:
        self._books = books
        self._scan = scan
        self._residency = residency
        self._leaving = leaving

    # -- the memory of one request -----------------------------------------------------------

    def transient_granted(
        self, now_ms: int, permit_id: str, lease_id: str, mib: int, out: list[Effect]
    ) -> None:
        """It runs, if it is still there and so is its place."""
        books = self._books
        waiter = books.room.get(permit_id)
        if waiter is None or waiter.instance is None:
            out.append(ReturnLease(lease_id))
            return
        instance, model = waiter.instance, books.models.get(waiter.model)
        if model is None or not _still_there(model, instance):
            books.stand_again(waiter)
            books.unsettled.add(waiter.model)
            out.append(ReturnLease(lease_id))
            return
        model.vacated_ms, model.thirst, books.lent_ms = 0, 0, now_ms
        permit = self._scan.grant(now_ms, waiter, instance, out)
        permit.lease_id, permit.lease_mib = lease_id, mib
        model.transient_mib += mib
        grant = out[-1]
        assert isinstance(grant, Grant)  # noqa: S101 - what `grant` adds last
        grant.lease_id, grant.lease_mib = lease_id, mib

    def transient_denied(
        self, now_ms: int, permit_id: str, why: str | None, headroom_mib: int, out: list[Effect]
    ) -> None:
        """With a `why` for ever; else it stands aside until there may be more."""
        books = self._books
        waiter = books.room.get(permit_id)
        if waiter is None or waiter.instance is None:
            return
        if why is not None and not waiter.asked_leave_mib:
            books.refuse(now_ms, out, waiter, Cause.NEVER_FITS, why)
        elif waiter.request.try_acquire:
            books.refuse(now_ms, out, waiter, Cause.SATURATED, "", RETRY_AFTER_MS)
        else:
            books.stand_again(waiter)
            model = books.models[waiter.model]
            model.promised_mib = waiter.asked_leave_mib
            _stand_aside(model, waiter)
            model.thirst = model.short
            self._residency.denied(now_ms, model, waiter, headroom_mib, out)

    def transient_unanswered(self, now_ms: int, permit_id: str) -> None:
        """The broker does not answer. That is no refusal: nobody has to go for it."""
        books = self._books
        waiter = books.room.get(permit_id)
        if waiter is None or waiter.instance is None:
            return
        books.stand_again(waiter)
        model = books.models[waiter.model]
        _stand_aside(model, waiter)
        books.unsettled.add(model.key)
        self._ask_again(now_ms, model)

    # -- the memory of a model ---------------------------------------------------------------

    def lease_granted(self, now_ms: int, key: str, lease_id: str, out: list[Effect]) -> None:
        """It is loaded, if it is still wanted."""
        books = self._books
        model, first = books.models.get(key), books.room.first(key)
        if model is not None:
            model.asking = False
        if model is None or first is None or not _may_load(model) or model.doubtful:
            if model is not None and model.doubtful:  # it does, once there is room for all
                model.doubtful = False
                self._ask_again(now_ms, model)
            out.append(ReturnLease(lease_id))
            return
        if self._residency.rules_forbid(key):  # what has become resident meanwhile is in its way
            out.append(ReturnLease(lease_id))
            self._ask_again(now_ms, model)
            return
        model.starting, model.load_began_ms, model.vacated_ms = True, now_ms, 0
        model.denials, books.lent_ms = 0, now_ms
        if model.facts.state is not State.READY:
            model.pinned_by, model.pin_inherited = first.name, False  # 0e
        self._leaving.drop(model)
        out.append(StartLoad(key, lease_id))

    def lease_denied(
        self, now_ms: int, key: str, why: str | None, headroom_mib: int, out: list[Effect]
    ) -> None:
        """With a `why` for ever (2c); else room is made for it."""
        model = self._books.models.get(key)
        if model is None:
            return
        model.asking = False
        self._books.refused(now_ms, model.asked_rank, headroom_mib)
        first = self._books.room.first(key)
        # What was to be left for others may be theirs no more: only its own needs are for ever.
        final = not model.for_others and model.facts.state is not State.READY
        model.doubtful = False
        if why is not None and final:
            for waiter in self._books.room.of(key):
                if waiter.rank <= model.asked_rank:  # a higher tier may dip deeper
                    self._books.refuse(now_ms, out, waiter, Cause.NEVER_FITS, why)
        elif first is not None:
            self._residency.denied(now_ms, model, first, headroom_mib, out)
            model.doubtful = why is not None and model.need is not None and not model.need.victims

    def lease_unanswered(self, now_ms: int, key: str) -> None:
        """The broker does not answer. That is no refusal: nobody has to go for it."""
        if model := self._books.models.get(key):
            model.asking = False
            self._ask_again(now_ms, model)

    def load_ended(
        self, now_ms: int, key: str, failure: str | None, retry_after_ms: int, out: list[Effect]
    ) -> None:
        """With a `failure`, its waiters are told, unless another instance serves them."""
        model = self._books.models.get(key)
        if model is None:
            return
        serves = model.facts.state is State.READY
        self._books.changes += 1
        given_up, model.given_up, model.starting = model.given_up, False, False
        if given_up or not serves:
            model.leaving = False
        model.refresh()
        if failure is not None and not serves and not given_up:
            wait_ms = max(retry_after_ms, RETRY_AFTER_MS)
            self._books.refuse_all(now_ms, out, key, Cause.MODEL_FAILED, failure, wait_ms)
        elif not serves or failure is not None:
            self._ask_again(now_ms, model)  # nobody's fault, so it is tried again: not in a storm

    def _ask_again(self, now_ms: int, model: Model) -> None:
        model.ask_again_ms = now_ms + ASK_AGAIN_MS
        self._books.look_at(model.ask_again_ms, model.key)


def _stand_aside(model: Model, waiter: Waiter) -> None:
    """It, and who needs as much, until there may be more."""
    model.short = size_of(waiter.need_mib)
    model.short_for = waiter.name


def _may_load(model: Model) -> bool:
    return model.reachable and not model.leaving and model.facts.state in _LOADABLE


def _still_there(model: Model, instance: Instance) -> bool:
    known = model.instances.get(instance.facts.instance_id)
    return model.serves and known is not None and known.facts.state is State.READY
