"""What happens to the core under judgement, and what has to follow from it.

Each event changes what the judge remembers, and notes what the core must now do: whom to refuse
and why, which engine to ask, which lease to return. Whether it does is judged elsewhere
(`admission_oracle`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.scheduler.core.values import Cause, ModelFacts, Request, State, Tier
from tests.deep.admission_fairness import Fair
from tests.deep.admission_state import ASK_AGAIN_MS, NO, Held, Known, Waiter


@dataclass
class Events(Fair):
    """Follows every event of the core."""

    # -- what happens ------------------------------------------------------------------------

    def begin(self, now_ms: int) -> None:
        """A new step."""
        if self.must_refuse or self.must_ask or self.must_return:
            raise self.broken("the world did not judge its last step")
        self.now = now_ms
        self.may_refuse, self.must_hold, self.answered, self.arrived = {}, {}, "", ""
        for waiter in self.waiters:
            waiter.asked_in_step = False

    def arrive(self, request: Request) -> None:
        known = self.models.get(request.model)
        lane = self.settings.lane_of(request.lane or (known.facts.lane if known else ""))
        tier = Tier.BACKGROUND if lane.background else request.tier
        cost = 0 if request.parent else min(lane.cost, self.settings.permits)
        self.heard += 1
        self.arrived = request.permit_id
        waiter = Waiter(request, tier, lane, cost, (request.arrived_ms, self.heard))
        self._lift(request.key)
        surely, possibly = self._refusals(waiter)
        if surely and not self._free_at_once(waiter):
            self.must_refuse[waiter.name] = surely | possibly
            return
        self.may_refuse[waiter.name] = surely | possibly
        if request.try_acquire:
            self.may_refuse[waiter.name].add(Cause.SATURATED)
        self.waiters.append(waiter)

    def leave(self, name: str) -> None:
        if waiter := self.waiter(name):
            self._drop(waiter, "left")
        elif held := self.permit(name):
            if not held.over and not held.closed:
                self.must_ask.add((name, False))
            held.closed = True
            self._end_seen(held)
            self._settle(held)

    def started(self, name: str, model: str, instance: str, cost: int | None) -> None:
        """`cost`: what the core counted an unknown permit as, None if it did not take it up."""
        if held := self.permit(name):
            held.seen = True
        elif name in self.ended:
            if cost is not None:
                raise self.broken(f"{name} is over and came back")
        else:
            self._adopt(name, model, instance, cost)

    def over(self, name: str) -> None:
        held = self.permit(name)
        if held is None:
            return
        held.over = True
        self._end_seen(held)
        if held.adopted:
            self._free(held)
        elif not held.closed and not held.seen:
            self.must_refuse[name] = {Cause.GRANT_LAPSED}
            self._free(held)
        else:
            self._settle(held)

    def runs_on(self, name: str) -> None:
        if held := self.permit(name):
            held.seen = True

    def model(self, facts: ModelFacts) -> None:
        if facts.key not in self.models:
            self._learn_lane(facts)
        known = self.models.setdefault(facts.key, Known(facts))
        before = known.facts.state
        served = {i.instance_id for i in known.facts.instances}
        serve = {i.instance_id for i in facts.instances if i.state is State.READY}
        for waiter in self.waiters:
            gone = waiter.model == facts.key and not served <= serve
            waiter.unplaced |= gone and waiter.asking_ms is not None
        known.facts, known.reachable = facts, True
        known.loads_known |= any(i.load_ms for i in facts.instances)
        if facts.state is not State.COLD:
            known.starting = False
        if before is State.LOADING and facts.state is State.READY:
            known.loads_known = True
        if facts.state in (State.COLD, State.FAILED):
            known.leaving = False  # else until its unload has ended
        if self._cooling(known):
            self._refuse_all(facts.key, {Cause.MODEL_FAILED}, surely=True)

    def _learn_lane(self, facts: ModelFacts) -> None:
        """Who came before its model was known stands in the model's lane now, if it named none."""
        for waiter in [w for w in self.waiters if w.model == facts.key]:
            waiter.moved = True
            if waiter.request.lane:
                continue
            waiter.lane = self.settings.lane_of(facts.lane)
            waiter.tier = Tier.BACKGROUND if waiter.lane.background else waiter.request.tier
            if waiter.cost:
                waiter.cost = min(waiter.lane.cost, self.settings.permits)

    def snapshot(
        self,
        facts: Iterable[ModelFacts],
        running: dict[str, tuple[str, str]],
        known: set[str],
        costs: dict[str, int],
    ) -> None:
        listed = list(facts)
        for item in listed:
            self.model(item)
        for name, (model, instance) in running.items():
            self.started(name, model, instance, costs.get(name))
        present = {item.key for item in listed}
        for held in list(self.held):
            if held.model in present and held.seen and held.name not in running:
                self.over(held.name)
        for key in known - present:
            self.removed(key)

    def removed(self, key: str) -> None:
        if self.models.pop(key, None) is not None:
            self._refuse_all(key, {Cause.MODEL_NOT_FOUND}, surely=True)

    def lost(self, keys: Iterable[str]) -> None:
        for key in keys:
            if known := self.models.get(key):
                known.reachable = known.starting = known.leaving = False

    def lease_granted(self, key: str, lease: str) -> None:
        if known := self.models.get(key):
            known.asked = False
        self.stray_leases.add(lease)

    def lease_over(self, key: str, *, never: bool) -> None:
        """Denied or unanswered, or denied for ever: to those of the tier asked with, or lower."""
        known = self.models.get(key)
        if known is None:
            return
        known.asked = False
        if never:
            surely = known.facts.state is not State.READY and not known.leaves_more
            tier = known.asked_tier
            self._refuse_all(key, {Cause.NEVER_FITS}, surely=surely, up_to=tier)

    def load_ended(self, key: str, failure: str | None) -> None:
        if known := self.models.get(key):
            known.starting = False
            if failure is not None:
                self._refuse_all(key, {Cause.MODEL_FAILED}, surely=not known.ready)

    def unload_asked(self, key: str, blocking: int, *, force: bool) -> None:
        busy = any(held.model == key for held in self.held)
        waits = any(waiter.model == key for waiter in self.waiters)
        if force and blocking:
            raise self.broken(f"{key}: a forced unload does not wait for {blocking}")
        if blocking == 0 and busy and not force:
            raise self.broken(f"{key} may leave, but requests run on it")
        if blocking and not busy and not waits:
            raise self.broken(f"{key}: {blocking} are said to stand in the way; there are none")
        if blocking == 0:
            self.models[key].leaving = True

    def unload_ended(self, key: str) -> None:
        if known := self.models.get(key):
            known.leaving = False

    def transient_granted(self, name: str, lease: str) -> None:
        self.stray_leases.add(lease)
        self.answered = name

    def transient_over(self, name: str, *, never: bool) -> None:
        """Denied for now, unanswered, or denied for ever."""
        waiter = self.waiter(name)
        if waiter is None or waiter.asking_ms is None:
            return
        waiter.asking_ms, waiter.asked_in_step = None, True
        self.dry_until_ms[waiter.model] = self.now + ASK_AGAIN_MS
        if never:
            self.must_refuse[name] = {Cause.NEVER_FITS}
            self._drop(waiter, "refused")

    def hold(self, lane: str, holder: str, hold_ms: int) -> None:
        expires = self.now + min(hold_ms, self.settings.max_hold_ms)
        self.holds[lane, holder] = self.must_hold[lane, holder] = expires

    def release_hold(self, lane: str, holder: str) -> None:
        self.holds.pop((lane, holder), None)

    def reconcile(self, *, catalogued: bool) -> None:
        self.reconciled = True
        if catalogued:
            self.catalogued = True
            for key in {waiter.model for waiter in self.waiters} - self.models.keys():
                self._refuse_all(key, {Cause.MODEL_NOT_FOUND}, surely=True)

    def tick(self) -> None:
        for waiter in list(self.waiters):
            if waiter.order[0] + waiter.lane.wait_ms <= self.now:
                self.must_refuse[waiter.name] = {Cause.ADMISSION_TIMEOUT}
                self._drop(waiter, "refused")
        for held in list(self.held):
            self._tick_held(held)
        for place in [place for place, until in self.holds.items() if until <= self.now]:
            del self.holds[place]
            self.must_hold[place] = 0
        for waiter in self.waiters:
            after = self.settings.promote_after_ms.get(waiter.tier)
            due = after is not None and waiter.order[0] + after <= self.now
            if due and not waiter.promoted:
                self._promote(waiter)

    def deadline_ms(self) -> int | None:
        """By when the core has to be ticked."""
        settings = self.settings
        times = [waiter.order[0] + waiter.lane.wait_ms for waiter in self.waiters]
        times += list(self.holds.values())
        for waiter in self.waiters:
            after = settings.promote_after_ms.get(waiter.tier)
            if after is not None and not waiter.promoted and not waiter.request.parent:
                times.append(waiter.order[0] + after)
        for held in self.held:
            if not held.asked_limit:
                times.append(held.granted_ms + held.lane.max_run_ms)
            if not held.seen and not held.asked_unused and not held.closed:
                times.append(held.granted_ms + settings.use_within_ms)
        return min(times, default=None)

    # -- ends --------------------------------------------------------------------------------

    def _refusals(self, waiter: Waiter) -> tuple[set[Cause], set[Cause]]:
        """Why an arrival is surely refused unless it is granted at once, and why it may be."""
        request, settings = waiter.request, self.settings
        surely: set[Cause] = set()
        possibly: set[Cause] = set()
        known = self.models.get(request.model)
        if known is None and self.catalogued:
            surely.add(Cause.MODEL_NOT_FOUND)
        if known is not None and self._cooling(known):
            surely.add(Cause.MODEL_FAILED)
        if request.parent:
            parent = self.permit(request.parent)
            if parent is None:
                surely.add(Cause.PARENT_OVER)
            elif parent.first_end_ms is not None:
                possibly.add(Cause.PARENT_OVER)
        fairness = settings.fairness
        limit = settings.queue_limits.get(waiter.tier, settings.queue_limit)
        rank = [w for w in self.waiters if w.tier == waiter.tier]
        if request.parent:  # stands above all tiers
            limit, rank = settings.queue_limit, [w for w in self.waiters if w.request.parent]
        rows = (
            (Cause.QUEUE_FULL, limit, rank),
            (
                Cause.KEY_QUEUE_FULL,
                fairness.pending_per_key if waiter.key else 10**9,
                [w for w in self.waiters if (w.key, w.model) == (waiter.key, waiter.model)],
            ),
            (
                Cause.MODEL_QUEUE_FULL,
                fairness.pending_per_model,
                [w for w in self.waiters if w.model == waiter.model],
            ),
        )
        for cause, bound, waiting in rows:
            if len(waiting) >= bound:
                possibly.add(cause)
            if waiter.plain and sum(w.plain and w.asking_ms is None for w in waiting) >= bound:
                surely.add(cause)
        return surely, possibly

    def _free_at_once(self, waiter: Waiter) -> bool:
        """Full queues need not turn away what does not have to wait."""
        causes, _ = self._refusals(waiter)
        full = {Cause.QUEUE_FULL, Cause.KEY_QUEUE_FULL, Cause.MODEL_QUEUE_FULL}
        if causes - full:
            return False
        return self._eligible(waiter) != NO and self._free_permits(surely=False) >= waiter.cost

    def _refuse_all(
        self, key: str, causes: set[Cause], *, surely: bool, up_to: Tier = Tier.PAID
    ) -> None:
        asked_low = up_to < Tier.PAID
        for waiter in [w for w in self.waiters if w.model == key and w.tier <= up_to]:
            if waiter.request.parent and asked_low:
                continue  # stands above all tiers
            if surely and not (waiter.request.parent and causes == {Cause.NEVER_FITS}):
                self.must_refuse[waiter.name] = causes
                self._drop(waiter, "refused")
            else:
                self.may_refuse.setdefault(waiter.name, set()).update(causes)

    def _tick_held(self, held: Held) -> None:
        unused = held.granted_ms + self.settings.use_within_ms <= self.now
        if unused and not held.seen and not held.asked_unused and not held.closed:
            held.asked_unused = True
            self.must_ask.add((held.name, True))
        if held.asked_limit or held.granted_ms + held.lane.max_run_ms > self.now:
            return
        held.asked_limit = True
        if not held.closed and not held.adopted:
            self.must_refuse[held.name] = {Cause.RUN_TOO_LONG}
        if not held.over and not held.closed:
            self.must_ask.add((held.name, False))
        self.must_ask.discard((held.name, True))
        held.closed = True
        self._settle(held)

    def _settle(self, held: Held) -> None:
        if held.over and held.closed:
            self._free(held)

    def _end_seen(self, held: Held) -> None:
        if held.first_end_ms is None:
            held.first_end_ms = self.now

    def _free(self, held: Held) -> None:
        self.held.remove(held)
        self.ended[held.name] = "over"
        heirs = [other for other in self.held if other.root == held.root]
        if heirs:  # the permits stay taken until the last that runs under them is over
            heirs[0].inherited += held.cost + held.inherited
        if held.lease:
            self.must_return.add(held.lease)
        ran_ms = self.now - held.granted_ms
        self.runs.setdefault((held.lane.name, held.model), []).append(ran_ms)
        span, weight = self._span(held.key), self._weight(held.key)
        if held.adopted:
            span.hi += held.cost * ran_ms / weight
        elif held.cost:
            span.charged = True
            first = held.granted_ms if held.first_end_ms is None else held.first_end_ms
            least = first - held.granted_ms if held.seen else 0
            span.lo += held.cost * least / weight
            span.hi += held.cost * (self.now - held.asked_ms) / weight
        self._idle(held.key)

    def _drop(self, waiter: Waiter, how: str) -> None:
        if waiter in self.waiters:
            self.waiters.remove(waiter)
        self.ended[waiter.name] = how
        self._idle(waiter.key)

    def _idle(self, key: str) -> None:
        self._span(key).idle_since_ms = self.now

    def _adopt(self, name: str, model: str, instance: str, cost: int | None) -> None:
        known = self.models.get(model)
        lane = self.settings.lane_of(known.facts.lane if known else "")
        if cost is None:
            raise self.broken(f"{name} runs on an engine, and the core does not count it")
        if known is not None and not 0 <= cost <= min(lane.cost, self.settings.permits):
            raise self.broken(f"{name} is counted as {cost}, its lane costs {lane.cost}")
        self.held.append(Held(name, model, instance, lane, cost, Tier.FREE, "", self.now, self.now))
        self.held[-1].adopted = self.held[-1].seen = True
        self.held[-1].root = name

    def _promote(self, waiter: Waiter) -> None:
        if waiter.request.parent:
            return  # stands above all tiers already
        waiter.tier, waiter.promoted, waiter.moved = Tier(waiter.tier + 1), True, True
