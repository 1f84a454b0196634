"""A deliberately dumb judge of the admission core: lists, sorts, everything counted anew.

It follows a history beside the core and judges each decision against the precedence of the
scheduler (0a to 0f and 1). It shares no code with the core but the words that go in and come out.

It forbids what surely must not be, demands what surely must be, and lets the rest pass. Without
fairness keys, models on their way or leases in doubt, nothing is left to choose, and its word is
exact. The machine's world (facts, clocks, engines) stays out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    AskTransient,
    Cause,
    Effect,
    Grant,
    HoldChanged,
    Queued,
    Refuse,
    ReturnLease,
    StartLoad,
    StartUnload,
    State,
    Tier,
)
from tests.deep.admission_events import Events
from tests.deep.admission_state import MAYBE, NO, YES, Held, Known, Waiter


@dataclass
class Judge(Events):
    """Follows one life of a scheduler core, and judges it."""

    # -- what the core decided ---------------------------------------------------------------

    def judge(self, effects: Iterable[Effect]) -> None:
        """Check the effects of one event in their order, then what is missing."""
        queued: list[str] = []
        tried: list[Waiter] = []
        for effect in effects:
            match effect:
                case Grant():
                    self._granted(effect)
                case Refuse():
                    self._refused(effect, tried)
                case AskTransient():
                    self._asks_transient(effect)
                case AskEngine(name, _, only):
                    self._asks_engine(name, only)
                case AskLease():
                    self._asks_lease(effect)
                case StartLoad(key, lease):
                    self._starts(key, lease)
                case ReturnLease(lease):
                    self._returns(lease)
                case StartUnload(key):
                    raise self.broken(f"{key} is unloaded; nothing here may be evicted")
                case HoldChanged():
                    self._hold_told(effect)
                case Queued(name, position):
                    queued.append(name)
                    self._queued(name, position)
                case _:
                    pass
        self._missing(tried)
        waiter = self.waiter(self.arrived)
        if waiter and waiter.asking_ms is None and waiter.name not in queued:
            raise self.broken(f"{waiter.name} waits and was not told so")

    def _missing(self, tried: list[Waiter]) -> None:
        if self.must_refuse:
            raise self.broken(f"not refused: {self.must_refuse}")
        if self.must_ask:
            raise self.broken(f"engines not asked: {self.must_ask}")
        if left := self.must_return | self.stray_leases:
            raise self.broken(f"leases neither used nor returned: {sorted(left)}")
        if self.must_hold:
            raise self.broken(f"holders not told: {self.must_hold}")
        for waiter in self.waiters:
            if waiter.request.try_acquire:
                raise self.broken(f"{waiter.name} only tries, and waits all the same")
        self.waiters += tried
        self._nobody_idle()
        for waiter in tried:
            self._drop(waiter, "refused")

    # -- grants ------------------------------------------------------------------------------

    def _granted(self, grant: Grant) -> None:
        waiter = self.waiter(grant.permit_id)
        if waiter is None:
            gone = self.ended.get(grant.permit_id, "unknown or running")
            raise self.broken(f"{grant.permit_id} is granted, but it is {gone}")
        if grant.waited_ms != self.now - waiter.request.arrived_ms:
            raise self.broken(f"{waiter.name} waited {self.now - waiter.request.arrived_ms} ms")
        known = self.models.get(waiter.model)
        if known is None or not known.ready or grant.model != waiter.model:
            raise self.broken(f"{waiter.name} is granted on {grant.model}, which does not serve")
        if waiter.request.load_only:
            self._drop(waiter, "granted")
            return
        if waiter.asking_ms is None:
            if self._peak(waiter):
                raise self.broken(f"{waiter.name} is granted without its transient lease")
            self._may_be_next(waiter)
        elif grant.lease_id not in self.stray_leases:
            raise self.broken(f"{waiter.name} is granted with {grant.lease_id}, not its lease")
        self.stray_leases.discard(grant.lease_id)
        self._check_instance(waiter, grant, known)
        if grant.max_run_ms != waiter.lane.max_run_ms:
            raise self.broken(f"{waiter.name} may run {waiter.lane.max_run_ms} ms")
        asked = self.now if waiter.asking_ms is None else waiter.asking_ms
        self.waiters.remove(waiter)
        self.held.append(
            Held(
                waiter.name,
                waiter.model,
                grant.instance_id,
                waiter.lane,
                waiter.cost,
                self._tier_of_run(waiter),
                waiter.key,
                self.now,
                asked,
                grant.lease_id,
                self._root(waiter),
            )
        )

    def _tier_of_run(self, waiter: Waiter) -> Tier:
        """A child runs in its parent's tier, whatever its lane says."""
        parent = self.permit(waiter.request.parent)
        return waiter.tier if parent is None else parent.tier

    def _root(self, waiter: Waiter) -> str:
        parent = self.permit(waiter.request.parent)
        return waiter.name if parent is None else parent.root

    def _asks_transient(self, ask: AskTransient) -> None:
        waiter = self.waiter(ask.permit_id)
        if waiter is None or waiter.asking_ms is not None or waiter.asked_in_step:
            raise self.broken(f"nothing to be asked for {ask.permit_id}")
        preferred = self._peak(waiter)
        least = waiter.request.minimum_mib or preferred
        if (ask.preferred_mib, ask.minimum_mib) != (preferred, least):
            raise self.broken(f"{waiter.name} wants {preferred} MiB, at least {least}")
        self._may_be_next(waiter)
        waiter.asking_ms, waiter.asked_in_step, waiter.unplaced = self.now, True, False

    def _may_be_next(self, waiter: Waiter) -> None:
        """Invariant 1, and each line of the precedence."""
        name = waiter.name
        if not self.reconciled:
            raise self.broken(f"{name} is granted before the engines have reported")
        if self._eligible(waiter) == NO:
            raise self.broken(f"{name} is granted, but its model, place, lane or parent forbids it")
        if waiter.request.parent:
            return
        if waiter.cost > self._free_permits(surely=False):
            raise self.broken(f"{name} costs {waiter.cost}, which is not free")
        if waiter.tier is Tier.BACKGROUND and self._background_barred() == YES:
            raise self.broken(f"{name} is background, and something above runs or waits")
        if not self._starts_possibly(waiter):
            raise self.broken(f"{name} takes permits kept for a higher tier whose model is coming")
        head = self._frozen_head(waiter.tier)
        if head is not None and name not in head:
            raise self.broken(f"{name} overtakes the frozen head {head}")
        was_head = name in self.frozen.get(waiter.tier, ())
        for other in self.waiters:
            if other is waiter or not other.plain or self._eligible(other) != YES:
                continue
            if other.tier > waiter.tier:
                raise self.broken(f"{name} overtakes {other.name} of a higher tier")
            if other.tier == waiter.tier and not was_head and self._surely_first(other, waiter):
                raise self.broken(f"{name} overtakes {other.name} of its tier")
        if was_head:
            self.frozen[waiter.tier] = set()

    def _check_instance(self, waiter: Waiter, grant: Grant, known: Known) -> None:
        found = [i for i in known.facts.instances if i.instance_id == grant.instance_id]
        if not found or found[0].state is not State.READY:
            raise self.broken(f"{waiter.name} is granted on {grant.instance_id}: not ready")
        if grant.address != found[0].address:
            raise self.broken(f"{waiter.name}: the address of {grant.instance_id} is another")
        loads = {i.instance_id: self._load(waiter.model, i) for i in known.facts.instances}
        if loads[grant.instance_id] >= found[0].places:
            raise self.broken(f"{waiter.name} is granted on {grant.instance_id}: full")
        if waiter.asking_ms is not None:
            return  # its place was chosen then; instances may have come since
        doubt = sum(w.asking_ms is not None and w.model == waiter.model for w in self.waiters)
        mine = loads[grant.instance_id]
        for other in known.facts.instances:
            load, places = loads[other.instance_id] + doubt, max(1, other.places)
            lighter = mine > load and mine / found[0].places > load / places
            if other.state is State.READY and lighter:
                raise self.broken(f"{waiter.name}: {other.instance_id} is less loaded")

    def _nobody_idle(self) -> None:
        """Whoever surely may start has started; who could not for want of permits is frozen."""
        if not self.reconciled:
            return
        for waiter in self.waiters:
            known = self.models.get(waiter.model)
            if waiter.request.load_only and known is not None and known.ready:
                raise self.broken(f"{waiter.name} wants {waiter.model} loaded, and it is")
            if waiter.request.parent and self._eligible(waiter) == YES:
                raise self.broken(f"{waiter.name} may run under {waiter.request.parent} and waits")
        for tier in sorted(Tier, reverse=True):
            if tier is Tier.BACKGROUND and self._background_barred() != NO:
                return
            if self._scan_stops(tier):
                return

    def _scan_stops(self, tier: Tier) -> bool:
        here = [w for w in self.waiters if w.plain and w.tier == tier]
        stand = [w for w in here if self._eligible(w) != NO]
        self._thaw(tier, stand)
        if not stand:
            return False
        firsts = self._possible_firsts(tier, stand)
        doubtful = any(self._eligible(w) == MAYBE for w in firsts)
        lacking = [w for w in firsts if not self._starts_surely(w)]
        before = self.frozen.get(tier, set())
        if not lacking and not doubtful:
            raise self.broken(f"nothing stops {[w.name for w in firsts]}, but they wait")
        self.frozen[tier] = {w.name for w in lacking}
        if doubtful:  # whose memory may be lacking for a moment stays frozen, if it was
            self.frozen[tier] |= {None} | (before & {w.name for w in stand})
        return True

    def _thaw(self, tier: Tier, stand: list[Waiter]) -> None:
        """A head that left, or whose model holds it up, freezes nothing for sure."""
        names = {w.name for w in stand}
        all_names = {w.name for w in self.waiters}
        frozen = self.frozen.get(tier, set())
        if frozen - names:
            self.frozen[tier] = {n for n in frozen if n in all_names} | {None}

    def _possible_firsts(self, tier: Tier, stand: list[Waiter]) -> list[Waiter]:
        head = self._frozen_head(tier)
        if head is not None:
            return [w for w in stand if w.name in head]
        sure = [w for w in stand if self._eligible(w) == YES]
        frozen = self.frozen.get(tier, set())
        return [
            w
            for w in stand
            if w.name in frozen or not any(self._surely_first(s, w) for s in sure if s is not w)
        ]

    def _frozen_head(self, tier: Tier) -> set[str | None] | None:
        """Among whom the frozen head of a tier surely is; None where it is unsure."""
        frozen = self.frozen.get(tier, set())
        if not frozen or None in frozen:
            return None
        standing = {w.name for w in self.waiters if w.tier == tier and self._eligible(w) == YES}
        return frozen if frozen <= standing else None

    # -- other effects -----------------------------------------------------------------------

    def _asks_engine(self, name: str, only: bool) -> None:
        held = self.permit(name)
        if (name, only) in self.must_ask:
            self.must_ask.discard((name, only))
        elif held is None or not (held.closed or (only and not held.seen)):
            raise self.broken(f"no reason to ask the engine about {name}")

    def _asks_lease(self, ask: AskLease) -> None:
        known = self.models.get(ask.model)
        if known is None or known.asked or known.starting or not known.reachable:
            raise self.broken(f"no lease is to be asked for {ask.model}")
        if known.facts.state not in (State.COLD, State.FAILED, State.READY):
            raise self.broken(f"{ask.model} is {known.facts.state}: no lease is wanted for it")
        if not any(w.model == ask.model for w in self.waiters):
            raise self.broken(f"nobody waits for {ask.model}")
        known.asked, known.asked_tier = True, ask.tier
        known.leaves_more = ask.leave_mib > known.facts.peak_mib

    def _starts(self, key: str, lease: str) -> None:
        if lease not in self.stray_leases:
            raise self.broken(f"{key} is loaded into {lease}, which was not just granted")
        if not any(w.model == key for w in self.waiters):
            raise self.broken(f"{key} is loaded for nobody")
        self.stray_leases.remove(lease)
        self.models[key].starting = True

    def _returns(self, lease: str) -> None:
        if lease not in self.must_return | self.stray_leases:
            raise self.broken(f"{lease} is returned, and was in use or never granted")
        waiter = self.waiter(self.answered) if lease in self.stray_leases else None
        if waiter is not None and waiter.asking_ms is not None:
            waiter.asking_ms = None
            if self._eligible(waiter) == YES and not waiter.unplaced:
                raise self.broken(f"{waiter.name} has its transient lease and is not granted")
        self.must_return.discard(lease)
        self.stray_leases.discard(lease)

    def _hold_told(self, told: HoldChanged) -> None:
        place = (told.lane, told.holder)
        expected = self.must_hold.pop(place, self.holds.get(place, 0))
        if told.expires_ms != expected:
            raise self.broken(f"the hold of {place} ends at {expected}")
        running = sum(held.lane.name == told.lane for held in self.held)
        aside = sum(w.asking_ms is not None and w.lane.name == told.lane for w in self.waiters)
        if expected and not running <= told.running <= running + aside:
            raise self.broken(f"{running} run in the held lane {told.lane}")

    def _queued(self, name: str, position: int) -> None:
        if not self.waiter(name):
            raise self.broken(f"{name} is told its place, but does not wait")
        if not 0 <= position < len(self.waiters):
            raise self.broken(f"{name} is told place {position} among {len(self.waiters)}")

    def _refused(self, refuse: Refuse, tried: list[Waiter]) -> None:
        name, cause = refuse.permit_id, refuse.cause
        if name in self.must_refuse:
            if cause not in self.must_refuse.pop(name):
                raise self.broken(f"{name} is refused for the wrong cause: {cause}")
            self.ended.setdefault(name, "refused")
            return
        waiter = self.waiter(name)
        if waiter is not None and cause is Cause.PARENT_OVER and waiter.request.parent:
            parent = self.permit(waiter.request.parent)
            if parent is None or parent.first_end_ms is not None:
                self._drop(waiter, "refused")
                return
        if waiter is None or cause not in self.may_refuse.get(name, ()):
            raise self.broken(f"{name} is refused for no reason: {cause}")
        if cause is Cause.SATURATED:
            self.waiters.remove(waiter)
            tried.append(waiter)
        else:
            self._drop(waiter, "refused")
