"""Who runs next, and which models live on the device: every event of the scheduler's core. Pure.

Every public method that takes the time and answers with effects is one event. It changes the books
in place and says what the shell has to perform; where anything may follow from it, it ends in one
decision, by these rules. The code cites their numbers.

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
    0e. A model loaded for a waiter is pinned until that waiter is granted or gone. The pin yields
        where both would wait for ever: to a higher tier than background if it is for background,
        if the waiter's lane is held, or if it lacks memory that a more urgent one wants too. Who
        inherits it, because the one it was loaded for has gone, keeps it from no higher tier.
    0f. A call on behalf of a permit holder runs under its parent's permits and waits for none; it
        stands above all tiers, and no hold of a lane that it is for keeps it. It sends no model
        away that it is for. What is over has no calls made on its behalf.
1.  Who will not wait (`try_acquire`) is refused while the same or a higher tier waits for permits.
2.  Residency, for the models that are waited for, the most urgent waiter (tier, first arrival)
    first. A lease first, one question at a time. Refused for now: the cheapest plan says who goes.
    2a. Idle models (2d) go at once. Busy ones are marked: they take no more of a lower tier than
        the waiter's; of its own tier until it has waited `max_swap_delay_ms`, and from then on
        only who came before it; of higher tiers always. When that leaves them idle, or only what
        must yield runs on them, they drain for `drain_ms`; then what still runs is ended.
    2b. The lease is asked for again when memory may be back, or after half a second; each time
        that it is refused later, up to two seconds.
    2c. Refused for ever: its waiters are refused.
    2d. Idle means: nothing runs on it, and nobody waits whom it may take before it goes. If its
        last requests came close together, it also lingers: for `linger_ms` after its last use it
        does not go for one of that use's tier or below, unless that has waited
        `max_swap_delay_ms`. The models of one plan leave together.
    2e. Less urgent loads leave free what more urgent ones wait for, and may live beside those.
3.  A model that FAILED refuses its waiters at once, with the time until it may be tried again; if
    that time is now, it counts as COLD.
4.  Virtual time: see `clients`.
5.  Twins: see `twins`.
6.  A model that is configured no more takes nothing new: who waits for it, or comes, goes to a twin
    or is refused. What runs on it finishes, and its memory is its own until its service lets it go.

Where it is done: `entrance` lets requests in, `scan` grants, `running` ends; `residency` asks for
the memory of models, `choosing` says who might leave for it, `leaving` has them leave; `answers`
takes in what was asked, `roster` what services report; `books` is all that is remembered.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from services.scheduler.core.alarms import Alarm
from services.scheduler.core.answers import Answers
from services.scheduler.core.books import Books
from services.scheduler.core.choosing import Choosing
from services.scheduler.core.entrance import RETRY_AFTER_MS, Entrance
from services.scheduler.core.leaving import Leaving
from services.scheduler.core.plan import Plan
from services.scheduler.core.queue import WaitingRoom
from services.scheduler.core.residency import Residency
from services.scheduler.core.roster import Roster
from services.scheduler.core.running import Running
from services.scheduler.core.scan import Scan
from services.scheduler.core.sets import Rules
from services.scheduler.core.settings import ModelRules, Settings
from services.scheduler.core.state import Model, Permit
from services.scheduler.core.values import (
    Cause,
    Effect,
    ModelFacts,
    Queued,
    Refuse,
    Request,
    Tier,
)


class SchedulerCore:
    """Every event of the scheduler."""

    def __init__(self, settings: Settings) -> None:
        self.books = Books(settings)
        self.scan = Scan(self.books)
        self.entrance = Entrance(self.books, self.scan)
        self.leaving = Leaving(self.books, self.scan)
        self.choosing = Choosing(self.books, self.leaving)
        self.residency = Residency(self.books, self.leaving, self.choosing)
        self.roster = Roster(self.books, self.leaving)
        self.running = Running(self.books, self.roster)
        self.answers = Answers(self.books, self.scan, self.residency, self.leaving)
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
        books, entrance = self.books, self.entrance
        model = books.models.get(request.model)
        if model is None:
            model = entrance.model_of(request)
            if model is None and self.catalogued:
                return [Refuse(request.permit_id, Cause.MODEL_NOT_FOUND, request.model)]
        lane = entrance.lane_of(request, model)
        rank = entrance.rank_of(request, lane)
        if (refusal := entrance.refusal(now_ms, request, model, rank)) is not None:
            return [refusal]
        key = model.key if model is not None else request.model
        waiter = entrance.enter(now_ms, request, key, lane, rank)
        out: list[Effect] = []
        if model is None or not model.open:
            books.unsettled.add(key)
        if books.unsettled or books.loads or not self.reconciled or rank == Tier.BACKGROUND:
            self._decide(now_ms, out)
        elif not self.scan.unchanged_by(waiter):
            self.scan.newcomer(now_ms, waiter, out)
        if not waiter.waits:
            return out
        if request.try_acquire and waiter.instance is None:
            books.refuse(now_ms, out, waiter, Cause.SATURATED, "", RETRY_AFTER_MS)  # 1
            self._decide(now_ms, out)
        else:
            out.append(Queued(request.permit_id, books.room.ahead(waiter.rank) - 1))
        return out

    def leave(self, now_ms: int, permit_id: str) -> list[Effect]:
        """The caller's stream is closed, whatever it was doing."""
        out: list[Effect] = []
        if (permit := self.books.permits.out.get(permit_id)) is not None:
            self.running.closed(now_ms, permit, out)
        elif (waiter := self.books.room.get(permit_id)) is not None:
            self.books.forget(now_ms, waiter)
        else:
            return out
        return self._decided(now_ms, out)

    # -- permits -----------------------------------------------------------------------------

    def permit_started(
        self, now_ms: int, permit_id: str, model: str, instance_id: str
    ) -> list[Effect]:
        """An engine took a request in. One we do not know ran before our restart."""
        if self.running.seen(now_ms, permit_id, model, instance_id):
            return self._decided(now_ms, [])  # a model does not leave before its grants are seen
        return []

    def permit_over(self, now_ms: int, permit_id: str) -> list[Effect]:
        """An engine says that nothing runs under the permit, nor ever will."""
        permit = self.books.permits.out.get(permit_id)
        out: list[Effect] = []
        if permit is not None:
            self.running.over(now_ms, permit, out)
            if permit.over:
                self._decide(now_ms, out)
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
        out: list[Effect] = []
        self.answers.transient_granted(now_ms, permit_id, lease_id, mib, out)
        return self._decided(now_ms, out)

    def transient_denied(
        self, now_ms: int, permit_id: str, never: bool, detail: str, headroom_mib: int
    ) -> list[Effect]:
        """The broker refused the memory of one request, for now or for ever."""
        out: list[Effect] = []
        why = detail if never else None
        self.answers.transient_denied(now_ms, permit_id, why, headroom_mib, out)
        return self._decided(now_ms, out)

    def transient_unanswered(self, now_ms: int, permit_id: str) -> list[Effect]:
        """The broker does not answer about the memory of one request."""
        self.answers.transient_unanswered(now_ms, permit_id)
        return self._decided(now_ms, [])

    # -- models ------------------------------------------------------------------------------

    def model_changed(self, now_ms: int, facts: ModelFacts) -> list[Effect]:
        """A model service reports a model."""
        out: list[Effect] = []
        if self._reported(now_ms, facts, out):
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
            self._reported(now_ms, item, out)
        for permit_id, (model, instance_id) in running.items():
            self.running.seen(now_ms, permit_id, model, instance_id)
        for permit in list(self.permits.values()):
            if permit.model in present and permit.seen and permit.name not in running:
                self.running.over(now_ms, permit, out)
        for key in known - present:
            self._removed(now_ms, key, out)
        return self._decided(now_ms, out)

    def model_removed(self, now_ms: int, key: str) -> list[Effect]:
        """A model is not configured any more, and nothing is left of it."""
        out: list[Effect] = []
        self._removed(now_ms, key, out)
        return self._decided(now_ms, out)

    def rules_changed(self, now_ms: int, rules: ModelRules, sets: Rules | None) -> list[Effect]:
        """Other rules apply from now on about which models live on the device."""
        self.roster.ruled_anew(now_ms, rules, sets)
        return self._decided(now_ms, [])

    def worker_lost(self, now_ms: int, keys: Iterable[str]) -> list[Effect]:
        """The service of these models does not answer: nothing is granted or loaded there."""
        for key in keys:
            self.roster.lost(key)
        return self._decided(now_ms, [])

    def lease_granted(self, now_ms: int, key: str, lease_id: str) -> list[Effect]:
        """The broker granted a model's memory."""
        out: list[Effect] = []
        self.answers.lease_granted(now_ms, key, lease_id, out)
        return self._decided(now_ms, out)

    def lease_denied(
        self, now_ms: int, key: str, never: bool, detail: str, headroom_mib: int
    ) -> list[Effect]:
        """The broker refused a model's memory, for now or for ever."""
        out: list[Effect] = []
        self.answers.lease_denied(now_ms, key, detail if never else None, headroom_mib, out)
        return self._decided(now_ms, out)

    def lease_unanswered(self, now_ms: int, key: str) -> list[Effect]:
        """The broker does not answer about a model's memory."""
        self.answers.lease_unanswered(now_ms, key)
        return self._decided(now_ms, [])

    def load_ended(
        self, now_ms: int, key: str, failure: str | None, retry_after_ms: int = 0
    ) -> list[Effect]:
        """A load that was started is over. With a `failure`, its waiters are told."""
        out: list[Effect] = []
        self.answers.load_ended(now_ms, key, failure, retry_after_ms, out)
        return self._decided(now_ms, out)

    def unload_asked(self, key: str, *, force: bool) -> int:
        """Somebody wants the model gone: how many requests stand in the way; 0: it may leave."""
        model = self.books.models[key]
        if model.running and not force:
            return model.running
        self.roster.leaves(model)
        return 0

    def unload_ended(self, now_ms: int, key: str) -> list[Effect]:
        """An unload was performed or refused; the model's reports say which."""
        if model := self.books.models.get(key):
            self.roster.stays(model)
        return self._decided(now_ms, [])

    def plan(self, now_ms: int, key: str, tier: Tier, headroom_mib: int) -> Plan:
        """What loading a model would make leave, and why. Changes nothing. Raises KeyError."""
        return self.choosing.plan_for(now_ms, key, tier, headroom_mib)

    # -- lanes -------------------------------------------------------------------------------

    def hold(self, now_ms: int, lane: str, holder: str, hold_ms: int) -> list[Effect]:
        """Keep a lane closed; what runs in it may finish."""
        hold_ms = min(hold_ms, self.books.settings.max_hold_ms)
        until_ms = self.books.holds.hold(lane, holder, now_ms + hold_ms)
        self.books.alarms.set(until_ms, Alarm.HOLD, (lane, holder, until_ms))
        return self._decided(now_ms, [self.running.hold_state(lane, holder)])

    def release_hold(self, now_ms: int, lane: str, holder: str) -> list[Effect]:
        """Open a lane, unless others hold it too."""
        if not self.books.holds.release(lane, holder):
            return []
        return self._decided(now_ms, [self.running.hold_state(lane, holder)])

    # -- time --------------------------------------------------------------------------------

    def reconcile(self, now_ms: int) -> list[Effect]:
        """Every engine has reported after our start, or had its time to: granting may begin."""
        self.reconciled = True
        return self._decided(now_ms, [])

    def catalogue_complete(self, now_ms: int) -> list[Effect]:
        """Every model service has reported: who waits for an unknown model is told."""
        self.catalogued = True
        out: list[Effect] = []
        self.entrance.name_unknown(now_ms, out)
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
        return self._decided(now_ms, out)

    def queue_positions(self) -> list[Effect]:
        """Everyone's place, for the sign of life that waiters get."""
        return [Queued(w.name, i) for i, w in enumerate(self.room.in_order())]

    def _reported(self, now_ms: int, facts: ModelFacts, out: list[Effect]) -> bool:
        is_new = facts.key not in self.books.models
        changed = self.roster.reported(now_ms, facts, out)
        if is_new:
            self.entrance.readmit(now_ms, facts.key)
        if facts.removed:
            self.entrance.turn_away(now_ms, facts.key, out)  # 6
        return changed

    def _removed(self, now_ms: int, key: str, out: list[Effect]) -> None:
        self.roster.removed(now_ms, key)
        self.entrance.turn_away(now_ms, key, out)

    # -- the decision ------------------------------------------------------------------------

    def _decided(self, now_ms: int, out: list[Effect]) -> list[Effect]:
        self._decide(now_ms, out)
        return out

    def _decide(self, now_ms: int, out: list[Effect]) -> None:
        if not self.reconciled:
            return
        if self.books.loads:
            self.roster.grant_loads(now_ms, out)
        self.scan.run(now_ms, out)
        if self.books.unsettled:
            self.residency.run(now_ms, out)

    def _ring(self, now_ms: int, what: Alarm, subject: Any, out: list[Effect]) -> None:
        match what:
            case Alarm.WAITED:
                cause = Cause.ADMISSION_TIMEOUT
                self.books.refuse(now_ms, out, subject, cause, "", RETRY_AFTER_MS)
            case Alarm.PROMOTE:
                self.entrance.promote(now_ms, subject)
            case Alarm.UNUSED:
                self.running.unused(subject, out)
            case Alarm.RAN:
                self.running.ran_too_long(now_ms, subject, out)
            case Alarm.HOLD:
                lane, holder, _ = subject
                if self.books.holds.release(lane, holder):
                    out.append(self.running.hold_state(lane, holder))
            case Alarm.LOOK:
                self.roster.look(now_ms, self.books.looked_at(subject), out)
