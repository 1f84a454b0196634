"""Who runs next, and which models live on the device: every event of the scheduler's core. Pure.

Every public method is one event. It changes the books in place and returns the effects that the
shell has to perform. Each ends in one decision, by these rules; the code cites their numbers.

0.  Permits.
    0a. Only requests whose model is READY with a free place, whose lane is not held and whose
        transient memory can be leased stand in the scan. A waiter that its own model holds up
        holds up nobody else, but permits are kept for it: a lower tier may start beside a waiter
        of a higher tier whose model is coming (asked for, being made room for, LOADING) only if
        each such model's most urgent waiter finds its permits free all the same, or if the lower
        one's run is expected (p90 of its lane and model) to end before the load does.
    0b. Tier; in a tier the fairness key with the least virtual time; then first come first served.
        Of one model's keys, those with `soft_inflight` requests on it come after the others.
    0c. The first that lacks permits ends the scan, and is passed by nobody but a higher tier until
        it is granted or gone.
    0d. Background starts only when nothing of a higher tier runs or waits. It evicts nothing used
        within `background_quiet_ms`, and its load is given up for a higher tier.
    0e. A model loaded for a waiter is pinned until that waiter is granted or gone.
    0f. A call on behalf of a permit holder runs under its parent's permits and waits for none; it
        stands above all tiers. What is over has no calls made on its behalf.
1.  Who will not wait (`try_acquire`) is refused while the same or a higher tier waits for permits.
2.  Residency, for the models that are waited for, the most urgent waiter (tier, first arrival)
    first. A lease first, one question at a time. Refused for now: the cheapest plan says who goes.
    2a. Idle models go at once. Busy ones are marked: they take no more of a lower tier than the
        waiter's; of its own tier until it has waited `max_swap_delay_ms`, and from then on only
        who came before it; of higher tiers always. When that leaves them idle, or only what must
        yield runs on them, they drain for `drain_ms`; then what still runs is ended.
    2b. The lease is asked for again when memory may be back, or after half a second.
    2c. Refused for ever: its waiters are refused.
    2d. Idle means: nothing runs on it, and nobody waits whom it may take before it goes. The
        models of one plan leave together.
    2e. What less urgent loads ask for leaves free what more urgent ones still wait for.
3.  A model that FAILED refuses its waiters at once, with the time until it may be tried again; if
    that time is now, it counts as COLD.
4.  Virtual time: see `clients`.
5.  Twins: see `twins`.

The life of a permit: granted → (its engine saw it) → stream closed and engine done → free. The
core never guesses: it asks the engine (`AskEngine`) whenever the two do not agree.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from services.scheduler.core import twins
from services.scheduler.core.alarms import Alarm
from services.scheduler.core.books import Books
from services.scheduler.core.line import Waiter
from services.scheduler.core.plan import Plan
from services.scheduler.core.queue import CHILD, WaitingRoom
from services.scheduler.core.residency import ASK_AGAIN_MS, Residency
from services.scheduler.core.scan import Scan
from services.scheduler.core.settings import Settings
from services.scheduler.core.state import Instance, Model, Permit
from services.scheduler.core.values import (
    AskEngine,
    Cause,
    Effect,
    Grant,
    HoldChanged,
    Lane,
    Loading,
    ModelFacts,
    Queued,
    Refuse,
    Request,
    ReturnLease,
    StartLoad,
    StartUnload,
    State,
    Tier,
)

_RETRY_AFTER_MS = 1_000
_UNLOAD_DRAIN_MS = 1_000


class SchedulerCore:
    """Every event of the scheduler."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.books = Books(settings)
        limits = settings.queue_limits
        self._limits = [0, *(limits.get(tier, settings.queue_limit) for tier in Tier)]
        """Requests that may wait, by rank."""
        self.scan = Scan(self.books)
        self.residency = Residency(self.books, self.scan)
        self.reconciled = False
        """Granting may begin."""
        self.catalogued = False
        """Every model service has reported: a model that is not known does not exist."""

    @property
    def permits(self) -> Mapping[str, Permit]:
        """The permits that are out, by id."""
        return self.books.permits.out

    @property
    def in_use(self) -> int:
        """Permits out or set aside; more than there are only after a restart found them running."""
        return self.books.permits.in_use

    @property
    def room(self) -> WaitingRoom:
        """Who waits."""
        return self.books.room

    @property
    def models(self) -> Mapping[str, Model]:
        """Every model that was reported, by key."""
        return self.books.models

    # -- requests ----------------------------------------------------------------------------

    def arrive(self, now_ms: int, request: Request) -> list[Effect]:
        """A request asks to run."""
        books = self.books
        model = books.models.get(request.model) or self._of_family(request)
        key = model.key if model is not None else request.model
        lane = self._lane(request, model)
        rank = Tier.BACKGROUND if lane.background else request.tier
        refusal = self._refusal(now_ms, request, model, key, rank)
        if refusal is not None:
            return [refusal]
        waiter = self._enter(now_ms, request, key, lane, rank)
        out: list[Effect] = []
        if model is None or not model.open:
            books.unsettled.add(key)
        elif self.scan.unchanged_by(waiter) and not books.unsettled and not request.load_only:
            out.append(Queued(request.permit_id, books.room.ahead(waiter.rank) - 1))
            return out
        self._decide(now_ms, out)
        if not waiter.waits or waiter.instance is not None:
            return out  # granted, or its memory is being asked for
        if request.try_acquire:
            books.refuse(now_ms, out, waiter, Cause.SATURATED, "", _RETRY_AFTER_MS)
            self._decide(now_ms, out)
        else:
            out.append(Queued(request.permit_id, books.room.ahead(waiter.rank) - 1))
        return out

    def leave(self, now_ms: int, permit_id: str) -> list[Effect]:
        """The caller's stream is closed, whatever it was doing."""
        out: list[Effect] = []
        if (waiter := self.books.room.get(permit_id)) is not None:
            self.books.forget(now_ms, waiter)
            self._decide(now_ms, out)
        elif (permit := self.permits.get(permit_id)) is not None:
            permit.stream_closed = True
            self._settle(now_ms, permit, out)
        return out

    # -- permits -----------------------------------------------------------------------------

    def permit_started(
        self, now_ms: int, permit_id: str, model: str, instance_id: str
    ) -> list[Effect]:
        """An engine took a request in. One we do not know ran before our restart."""
        if permit := self.permits.get(permit_id):
            permit.seen = True
        elif not self.books.permits.is_over(permit_id):
            self._adopt(now_ms, permit_id, model, instance_id)
        return []

    def permit_over(self, now_ms: int, permit_id: str) -> list[Effect]:
        """An engine says that nothing runs under the permit, nor ever will."""
        permit = self.permits.get(permit_id)
        if permit is None:
            return []
        out: list[Effect] = []
        permit.engine_over = True
        if permit.adopted:
            self._release(now_ms, permit, out)
        elif not permit.stream_closed and not permit.seen:
            # Only a lapsed grant is asked about while its stream is open.
            out.append(Refuse(permit_id, Cause.GRANT_LAPSED, "", 0))
            self._release(now_ms, permit, out)
        else:
            self._settle(now_ms, permit, out)
        return out

    def permit_runs(self, permit_id: str) -> list[Effect]:
        """The engine was asked about an unused grant, and it is in use."""
        if permit := self.permits.get(permit_id):
            permit.seen = True
        return []

    def transient_granted(
        self, now_ms: int, permit_id: str, lease_id: str, mib: int
    ) -> list[Effect]:
        """The broker granted the memory of one request: it runs."""
        waiter = self.books.room.get(permit_id)
        if waiter is None or waiter.instance is None:
            return [ReturnLease(lease_id)]
        out: list[Effect] = []
        instance, model = waiter.instance, self.books.models.get(waiter.model)
        if model is None or not _still_there(model, instance):
            self._stand_again(waiter)
            out.append(ReturnLease(lease_id))
        else:
            permit = self.scan.grant(now_ms, waiter, instance, out)
            permit.lease_id, permit.lease_mib = lease_id, mib
            model.transient_mib += mib
            grant = out[-1]
            assert isinstance(grant, Grant)  # noqa: S101 - what `grant` adds last
            grant.lease_id, grant.lease_mib = lease_id, mib
        self._decide(now_ms, out)
        return out

    def transient_denied(
        self, now_ms: int, permit_id: str, never: bool, detail: str, headroom_mib: int
    ) -> list[Effect]:
        """The broker refused the memory of one request, for now or for ever."""
        out: list[Effect] = []
        waiter = self.books.room.get(permit_id)
        if waiter is None or waiter.instance is None:
            return out
        if never:
            self.books.refuse(now_ms, out, waiter, Cause.NEVER_FITS, detail)
        elif waiter.request.try_acquire:
            self.books.refuse(now_ms, out, waiter, Cause.SATURATED, "", _RETRY_AFTER_MS)
        else:
            self._stand_again(waiter)
            model = self.books.models[waiter.model]
            model.short, model.promised_mib = True, 0
            model.refresh()
            self.residency.denied(now_ms, model, waiter, headroom_mib, out)
        self._decide(now_ms, out)
        return out

    def transient_unanswered(self, now_ms: int, permit_id: str) -> list[Effect]:
        """The broker does not answer. That is no refusal: nobody has to go for it."""
        out: list[Effect] = []
        waiter = self.books.room.get(permit_id)
        if waiter is None or waiter.instance is None:
            return out
        self._stand_again(waiter)
        model = self.books.models[waiter.model]
        model.short = True
        model.refresh()
        self.books.unsettled.add(model.key)
        self.books.look_at(now_ms + ASK_AGAIN_MS, model.key)
        self._decide(now_ms, out)
        return out

    # -- models ------------------------------------------------------------------------------

    def model_changed(self, now_ms: int, facts: ModelFacts) -> list[Effect]:
        """A model service reports a model."""
        out: list[Effect] = []
        self._take_facts(now_ms, facts, out)
        self._decide(now_ms, out)
        return out

    def snapshot(
        self,
        now_ms: int,
        facts: Iterable[ModelFacts],
        running: Mapping[str, tuple[str, str]],
        known: set[str],
    ) -> list[Effect]:
        """A model service reports everything: its models, and the permits that run (→ model,
        instance).

        `known` are the keys this service reported before: those it no longer has are removed, and
        permits of ours on its models that it does not list are over, if it had seen them.
        """
        out: list[Effect] = []
        present = set()
        for item in facts:
            present.add(item.key)
            self._take_facts(now_ms, item, out)
        for permit_id, (model, instance_id) in running.items():
            self.permit_started(now_ms, permit_id, model, instance_id)
        for permit in list(self.permits.values()):
            if permit.model in present and permit.seen and permit.name not in running:
                out += self.permit_over(now_ms, permit.name)
        for key in known - present:
            self._remove(now_ms, key, out)
        self._decide(now_ms, out)
        return out

    def model_removed(self, now_ms: int, key: str) -> list[Effect]:
        """A model is not configured any more."""
        out: list[Effect] = []
        self._remove(now_ms, key, out)
        self._decide(now_ms, out)
        return out

    def worker_lost(self, now_ms: int, keys: Iterable[str]) -> list[Effect]:
        """The service of these models does not answer: nothing is granted or loaded there."""
        for key in keys:
            if model := self.books.models.get(key):
                model.reachable = model.starting = model.leaving = False
                model.refresh()
                if self.books.room.waiting_for(key):
                    self.books.unsettled.add(key)
        out: list[Effect] = []
        self._decide(now_ms, out)
        return out

    def lease_granted(self, now_ms: int, key: str, lease_id: str) -> list[Effect]:
        """The broker granted a model's memory."""
        model, first = self.books.models.get(key), self.books.room.first(key)
        if model is not None:
            model.asking = False
        out: list[Effect] = []
        if (
            model is None
            or first is None
            or not model.reachable
            or model.facts.state not in _LOADABLE
        ):
            out.append(ReturnLease(lease_id))
        else:
            model.starting, model.load_began_ms = True, now_ms
            if model.facts.state is not State.READY:
                model.pinned_by = first.name  # 0e
            self.residency.drop_need(model)
            out.append(StartLoad(key, lease_id))
        self._decide(now_ms, out)
        return out

    def lease_denied(
        self, now_ms: int, key: str, never: bool, detail: str, headroom_mib: int
    ) -> list[Effect]:
        """The broker refused a model's memory, for now or for ever."""
        model, out = self.books.models.get(key), []  # type: ignore[var-annotated]
        if model is None:
            return out
        model.asking = False
        first = self.books.room.first(key)
        if never and model.facts.state is not State.READY:  # 2c
            self.books.refuse_all(now_ms, out, key, Cause.NEVER_FITS, detail)
        elif first is not None:
            self.residency.denied(now_ms, model, first, headroom_mib, out)
        self._decide(now_ms, out)
        return out

    def lease_unanswered(self, now_ms: int, key: str) -> list[Effect]:
        """The broker does not answer. That is no refusal: nobody has to go for it."""
        if model := self.books.models.get(key):
            model.asking = False
            model.ask_again_ms = now_ms + ASK_AGAIN_MS
            self.books.look_at(model.ask_again_ms, key)
        return []

    def load_ended(
        self, now_ms: int, key: str, failure: str | None, retry_after_ms: int = 0
    ) -> list[Effect]:
        """A load that was started is over. With a `failure`, its waiters are told."""
        out: list[Effect] = []
        model = self.books.models.get(key)
        if model is None:
            return out
        given_up = model.leaving and model.loading
        model.starting = False
        if given_up or model.facts.state is not State.READY:
            model.leaving = False
        model.refresh()
        if failure is not None and model.facts.state is not State.READY and not given_up:
            wait_ms = max(retry_after_ms, _RETRY_AFTER_MS)
            self.books.refuse_all(now_ms, out, key, Cause.MODEL_FAILED, failure, wait_ms)
        elif model.loadable(now_ms) or failure is not None:
            # Nobody's fault, so it is tried again: not in a storm.
            model.ask_again_ms = now_ms + ASK_AGAIN_MS
            self.books.look_at(model.ask_again_ms, key)
        self._decide(now_ms, out)
        return out

    def unload_asked(self, key: str, *, force: bool) -> int:
        """Somebody wants the model gone: how many requests stand in the way; 0: it may leave."""
        model = self.books.models[key]
        if model.running and not force:
            return model.running
        model.leaving = True
        model.refresh()
        if self.books.room.waiting_for(key):
            self.books.unsettled.add(key)
        return 0

    def unload_ended(self, now_ms: int, key: str) -> list[Effect]:
        """An unload was performed or refused; the model's reports say which."""
        out: list[Effect] = []
        if model := self.books.models.get(key):
            model.leaving = False
            model.refresh()
            self.books.memory_may_be_back()
        self._decide(now_ms, out)
        return out

    def plan(self, now_ms: int, key: str, tier: Tier, headroom_mib: int) -> Plan:
        """What loading a model would make leave, and why. Changes nothing. Raises KeyError."""
        return self.residency.plan_for(now_ms, key, tier, headroom_mib)

    # -- lanes -------------------------------------------------------------------------------

    def hold(self, now_ms: int, lane: str, holder: str, hold_ms: int) -> list[Effect]:
        """Keep a lane closed; what runs in it may finish."""
        until_ms = now_ms + min(hold_ms, self.settings.max_hold_ms)
        self.books.holds.hold(lane, holder, until_ms)
        self.books.alarms.set(until_ms, Alarm.HOLD, (lane, holder))
        out: list[Effect] = [self._hold_state(lane, holder)]
        self._decide(now_ms, out)
        return out

    def release_hold(self, now_ms: int, lane: str, holder: str) -> list[Effect]:
        """Open a lane, unless others hold it too."""
        if not self.books.holds.release(lane, holder):
            return []
        out: list[Effect] = [self._hold_state(lane, holder)]
        self._decide(now_ms, out)
        return out

    # -- time --------------------------------------------------------------------------------

    def reconcile(self, now_ms: int) -> list[Effect]:
        """Every engine has reported after our start, or had its time to: granting may begin."""
        self.reconciled = True
        out: list[Effect] = []
        self._decide(now_ms, out)
        return out

    def catalogue_complete(self, now_ms: int) -> list[Effect]:
        """Every model service has reported: who waits for an unknown model waits in vain."""
        self.catalogued = True
        out: list[Effect] = []
        for key in self.room.models() - self.books.models.keys():
            for waiter in self.room.of(key):
                self._rename(now_ms, waiter, out)
        return out + self.reconcile(now_ms)

    @property
    def next_alarm_ms(self) -> int | None:
        """When `tick` should be called next."""
        return self.books.alarms.next_ms

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed: end what waited or ran too long, ask again for what was refused."""
        out: list[Effect] = []
        for what, subject in self.books.alarms.due(now_ms):
            self._ring(now_ms, what, subject, out)
        self._decide(now_ms, out)
        return out

    def queue_positions(self) -> list[Effect]:
        """Everyone's place, for the sign of life that waiters get."""
        return [Queued(w.name, i) for i, w in enumerate(self.room.in_order())]

    # -- the decision ------------------------------------------------------------------------

    def _decide(self, now_ms: int, out: list[Effect]) -> None:
        if not self.reconciled:
            return
        if self.books.loads:
            self._grant_loads(now_ms, out)
        self.scan.run(now_ms, out)
        if self.books.unsettled:
            self.residency.run(now_ms, out)

    def _grant_loads(self, now_ms: int, out: list[Effect]) -> None:
        models = self.books.models
        served = [key for key in self.books.loads if key in models and models[key].serves]
        for key in served:
            model = models[key]
            model.last_used_ms = now_ms
            for waiter in list(self.books.loads[key].values()):
                self.books.forget(now_ms, waiter)
                waited_ms = now_ms - waiter.request.arrived_ms
                out.append(Grant(waiter.name, key, "", "", waited_ms, 0))
            self._after_use(now_ms, model)

    # -- pieces: requests --------------------------------------------------------------------

    def _of_family(self, request: Request) -> Model | None:
        members = [m for m in self.books.models.values() if m.facts.family == request.model]
        return twins.choose(members, request.tokens) if members else None

    def _lane(self, request: Request, model: Model | None) -> Lane:
        return self.settings.lane_of(request.lane or (model.facts.lane if model else ""))

    def _refusal(
        self, now_ms: int, request: Request, model: Model | None, key: str, rank: int
    ) -> Refuse | None:
        name, room, fairness = request.permit_id, self.books.room, self.settings.fairness
        if model is None and self.catalogued:
            return Refuse(name, Cause.MODEL_NOT_FOUND, request.model)
        if model is not None and (wait_ms := model.cooling_ms(now_ms)):
            return Refuse(name, Cause.MODEL_FAILED, model.facts.failure, wait_ms)  # 3
        if request.parent:
            parent = self.permits.get(request.parent)
            return None if parent is not None else Refuse(name, Cause.PARENT_OVER)  # 0f
        limit = self._limits[rank]
        if room.counts[rank] >= limit:
            return Refuse(name, Cause.QUEUE_FULL, f"{limit}", _RETRY_AFTER_MS)
        if room.waiting_for(key) >= fairness.pending_per_model:
            limit = fairness.pending_per_model
            return Refuse(name, Cause.MODEL_QUEUE_FULL, f"{limit}", _RETRY_AFTER_MS)
        if request.key and room.pending.get((key, request.key), 0) >= fairness.pending_per_key:
            limit = fairness.pending_per_key
            return Refuse(name, Cause.KEY_QUEUE_FULL, f"{limit}", _RETRY_AFTER_MS)
        if request.try_acquire and rank <= self.scan.stopped_at:
            return Refuse(name, Cause.SATURATED, "", _RETRY_AFTER_MS)  # 1
        return None

    def _enter(self, now_ms: int, request: Request, key: str, lane: Lane, rank: int) -> Waiter:
        books = self.books
        client = books.clients.enter(now_ms, request.key)
        cost = min(lane.cost, self.settings.permits)
        if request.parent:
            rank, cost = CHILD, 0
        elif request.load_only:
            cost = 0
        order = books.room.heard(request.arrived_ms)
        waiter = Waiter(request, key, rank, order, lane, cost, client)
        books.room.add(waiter)
        if request.load_only:
            books.loads.setdefault(key, {})[request.permit_id] = waiter
        books.alarms.set(request.arrived_ms + lane.wait_ms, Alarm.WAITED, waiter)
        if self.settings.promote_after_ms:
            self._promote_later(request.arrived_ms, waiter)
        return waiter

    def _promote_later(self, since_ms: int, waiter: Waiter) -> None:
        if waiter.rank < Tier.PAID:
            after_ms = self.settings.promote_after_ms.get(Tier(waiter.rank))
            if after_ms is not None:
                self.books.alarms.set(since_ms + after_ms, Alarm.PROMOTE, waiter)

    def _stand_again(self, waiter: Waiter) -> None:
        self.books.set_back(waiter)
        self.room.stand(waiter)

    def _rename(self, now_ms: int, waiter: Waiter, out: list[Effect]) -> None:
        """The catalogue is there: a waiter's model is a family, or does not exist."""
        family = self._of_family(waiter.request)
        if family is None:
            self.books.refuse(now_ms, out, waiter, Cause.MODEL_NOT_FOUND, waiter.request.model)
            return
        self.books.forget(now_ms, waiter)
        lane = self._lane(waiter.request, family)
        self._enter(now_ms, waiter.request, family.key, lane, waiter.rank)
        self.books.unsettled.add(family.key)

    # -- pieces: permits ---------------------------------------------------------------------

    def _settle(self, now_ms: int, permit: Permit, out: list[Effect]) -> None:
        """The caller or the engine is done with a permit; ask the engine, or free it."""
        if not permit.stream_closed:
            return
        if permit.engine_over:
            self._release(now_ms, permit, out)
        elif not permit.asked:
            permit.asked = True
            out.append(AskEngine(permit.name, permit.address, only_if_not_started=False))

    def _release(self, now_ms: int, permit: Permit, out: list[Effect]) -> None:
        """A permit is free; decide who gets it."""
        books, client = self.books, permit.client
        orphans = [w for w in self._calls_of(permit) if w.waits]
        books.permits.release(permit)
        ran_ms = now_ms - permit.granted_ms
        if permit.seen and not permit.adopted:
            books.runs.add(permit.lane, permit.model, ran_ms)
        client.running -= 1
        self._count_out(permit)
        books.clients.charge(client, permit.cost * ran_ms - permit.charged_ms)
        books.clients.settle(now_ms, client)
        for waiter in orphans:
            books.refuse(now_ms, out, waiter, Cause.PARENT_OVER)
        self._leave_model(now_ms, permit, out)
        if len(books.holds):
            out += [self._hold_state(permit.lane, who) for who in books.holds.of(permit.lane)]
        self._decide(now_ms, out)

    def _calls_of(self, permit: Permit) -> list[Waiter]:
        if not self.room.counts[CHILD]:
            return []
        return [w for w in self.room if w.request.parent == permit.name]

    def _count_out(self, permit: Permit) -> None:
        if self.settings.fairness.soft_inflight:
            place, inflight = (permit.model, permit.client.key), self.room.inflight
            inflight[place] -= 1
            if not inflight[place]:
                del inflight[place]

    def _leave_model(self, now_ms: int, permit: Permit, out: list[Effect]) -> None:
        model = self.books.models.get(permit.model)
        if permit.lease_id:
            out.append(ReturnLease(permit.lease_id))
            if model is not None:
                model.transient_mib -= permit.lease_mib
        if model is None:
            return
        model.vacate(permit.instance_id)
        model.last_used_ms = now_ms
        if model.running == 0:
            self._after_use(now_ms, model)
        if model.running == 0 or permit.lease_id:
            self.books.memory_may_be_back()

    def _after_use(self, now_ms: int, model: Model) -> None:
        ttl_ms = self.residency.rule(model.key).idle_ttl_ms
        if ttl_ms:
            self.books.look_at(now_ms + ttl_ms, model.key)

    def _adopt(self, now_ms: int, permit_id: str, key: str, instance_id: str) -> None:
        books = self.books
        model = books.models.get(key)
        lane = self.settings.lane_of(model.facts.lane if model else "")
        request = Request(permit_id, key, Tier.FREE, now_ms, lane.name)
        instance = model.instances.get(instance_id) if model is not None else None
        client = books.clients.enter(now_ms, "")
        permit = Permit(
            request,
            key,
            Tier.FREE,
            min(lane.cost, self.settings.permits),
            lane.name,
            client,
            instance.facts.address if instance is not None else "",
            instance_id,
            now_ms,
            lane.max_run_ms,
            seen=True,
            adopted=True,
        )
        books.permits.take(permit.cost, permit.rank, lane.name)
        books.permits.hold(permit)
        client.running += 1
        if self.settings.fairness.soft_inflight:
            place = (key, client.key)
            books.room.inflight[place] = books.room.inflight.get(place, 0) + 1
        books.alarms.set(now_ms + lane.max_run_ms, Alarm.RAN, permit)
        if model is not None:
            model.running += 1
            if instance is not None:
                instance.running += 1
            model.refresh()

    # -- pieces: models ----------------------------------------------------------------------

    def _take_facts(self, now_ms: int, facts: ModelFacts, out: list[Effect]) -> None:
        books = self.books
        model = books.models.get(facts.key)
        if model is None:
            model = books.models[facts.key] = Model(facts)
            model.last_used_ms = now_ms
        before, model.reachable = model.facts.state, True
        model.reported(facts)
        state = facts.state
        if state not in (State.READY, State.DRAINING, State.LOADING):
            model.leaving, model.short = False, False
        if state is State.READY and before is not State.READY:
            model.last_used_ms = now_ms
            self._after_use(now_ms, model)
        if state is State.LOADING:
            if before is not State.LOADING and not model.starting:
                model.load_began_ms = now_ms
            progress = max((i.progress for i in facts.instances), default=0.0)
            out += [Loading(w.name, facts.key, progress) for w in books.room.of(facts.key)]
        if books.room.waiting_for(facts.key):
            books.unsettled.add(facts.key)
        if state in (State.COLD, State.FAILED) and before is not state:
            books.memory_may_be_back()
        if wait_ms := model.cooling_ms(now_ms):  # 3
            books.refuse_all(now_ms, out, facts.key, Cause.MODEL_FAILED, facts.failure, wait_ms)

    def _remove(self, now_ms: int, key: str, out: list[Effect]) -> None:
        model = self.books.models.pop(key, None)
        if model is None:
            return
        self.residency.drop_need(model)
        self.books.refuse_all(now_ms, out, key, Cause.MODEL_NOT_FOUND, key)
        self.books.unsettled.discard(key)

    def _unload_unused(self, now_ms: int, model: Model, out: list[Effect]) -> None:
        ttl_ms = self.residency.rule(model.key).idle_ttl_ms
        if not ttl_ms or not model.serves or model.starting:
            return
        unused_ms = self.residency.unused_since(now_ms, model)
        if unused_ms >= ttl_ms:
            model.leaving = True
            model.refresh()
            why = f"unused for {unused_ms // 1_000} s"
            out.append(StartUnload(model.key, _UNLOAD_DRAIN_MS, False, why))
        elif not model.running:
            self.books.look_at(model.last_used_ms + ttl_ms, model.key)

    # -- pieces: time and lanes --------------------------------------------------------------

    def _ring(self, now_ms: int, what: Alarm, subject: Any, out: list[Effect]) -> None:
        match what:
            case Alarm.WAITED:
                self.books.refuse(
                    now_ms, out, subject, Cause.ADMISSION_TIMEOUT, "", _RETRY_AFTER_MS
                )
            case Alarm.PROMOTE:
                if subject.instance is None:
                    self.room.promote(subject)
                self._promote_later(now_ms, subject)
            case Alarm.UNUSED:
                self._unused(subject, out)
            case Alarm.RAN:
                self._ran_too_long(now_ms, subject, out)
            case Alarm.HOLD:
                lane, holder = subject
                if self.books.holds.until(lane, holder) <= now_ms:
                    out += self.release_hold(now_ms, lane, holder)
            case Alarm.LOOK:
                self.books.looked_at(subject)
                if (model := self.books.models.get(subject)) is not None:
                    self._look(now_ms, model, out)

    def _look(self, now_ms: int, model: Model, out: list[Effect]) -> None:
        if model.short and now_ms >= model.ask_again_ms:
            model.short = False
            model.refresh()
        self._unload_unused(now_ms, model, out)

    def _unused(self, permit: Permit, out: list[Effect]) -> None:
        self.books.alarms.set(permit.granted_ms + permit.max_run_ms, Alarm.RAN, permit)
        if not permit.seen and not permit.asked:
            out.append(AskEngine(permit.name, permit.address, only_if_not_started=True))

    def _ran_too_long(self, now_ms: int, permit: Permit, out: list[Effect]) -> None:
        if not permit.stream_closed and not permit.adopted:
            out.append(Refuse(permit.name, Cause.RUN_TOO_LONG, permit.lane))
        permit.stream_closed = True
        self._settle(now_ms, permit, out)

    def _hold_state(self, lane: str, holder: str) -> HoldChanged:
        books = self.books
        running = books.permits.lanes.get(lane, 0)
        return HoldChanged(lane, holder, running, books.holds.until(lane, holder))


_LOADABLE = frozenset({State.COLD, State.FAILED, State.READY})


def _still_there(model: Model, instance: Instance) -> bool:
    known = model.instances.get(instance.facts.instance_id)
    return model.serves and known is not None and known.facts.state is State.READY
