"""The real scheduler core and the real broker ledger on a card, in a world that takes its time.

What the core asks for becomes errands; each is run whenever the machine picks it, in any order, and
may fail. The rules are checked after every event (`residency_rules`).
"""

from dataclasses import dataclass

from services.broker.core import LeaseKind
from services.scheduler.core.values import (
    AskEngine,
    AskLease,
    AskTransient,
    CancelLoad,
    Effect,
    Grant,
    Refuse,
    ReturnLease,
    StartLoad,
    StartUnload,
    State,
    Tier,
)
from tests.deep.card import TTL_MS, Denied, Engine, Granted
from tests.deep.residency_life import Life
from tests.deep.residency_rules import ALLOWED, BOUND_MS, RUN_MS, SIZES, STEP_MS, Leaving, Wish


@dataclass
class ResidencyWorld(Life):
    """One history."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in SIZES:
            self._report(key)
        self._tell("every service has reported", lambda: self.core.catalogue_complete(self.now))

    def _hear(self, effect: Effect) -> None:
        match effect:
            case Grant():
                self._granted(effect)
            case Refuse():
                self._refused(effect)
            case AskLease():
                self._asks_lease(effect)
            case AskTransient():
                self._asks_transient(effect)
            case AskEngine(name, _, only):
                self._errand(f"ask about {name}", lambda: self.answer_engine(name, only=only))
            case ReturnLease(lease):
                self._returns(lease)
            case StartLoad():
                self._starts_load(effect)
            case CancelLoad():
                self._cancels(effect)
            case StartUnload():
                self._starts_unload(effect)
            case _:
                pass

    # -- the broker --------------------------------------------------------------------------

    def _asks_lease(self, ask: AskLease) -> None:
        first = self._first(ask.model)
        if first is None:
            raise self.broken(f"a lease is asked for {ask.model}, and nobody waits for it")
        resident, peak = SIZES[ask.model]
        if ask.resident_mib != resident or ask.leave_mib < peak:
            raise self.broken(f"{ask.model} takes {resident} and {peak} at its peak")
        self.wishes[ask.model] = Wish(first.permit_id)

        def run(heard: bool = True) -> None:
            answer = self.card.ask(
                self.now, LeaseKind.RESIDENT, ask.tier, resident, resident, ask.leave_mib
            )
            self.transcript.event(self.now, f"(the broker on {ask.model}: {_said(answer)})")
            if heard:
                self._errand(
                    f"answer about {ask.model}", lambda: self._answer_lease(ask.model, answer)
                )

        def ruin() -> None:
            if self.count % 2:  # heard, and the answer is lost
                run(heard=False)
            self._tell(
                f"no answer about {ask.model}",
                lambda: self.core.lease_unanswered(self.now, ask.model),
            )

        self._errand(f"ask the broker for {ask.model}", run, ruin)

    def _answer_lease(self, model: str, answer: Granted | Denied) -> None:
        core = self.core
        if isinstance(answer, Granted):
            lease = answer.lease.lease_id
            self.leases[lease] = model
            self._tell(f"{model} gets {lease}", lambda: core.lease_granted(self.now, model, lease))
            return
        never = answer.reason.value == "never_fits"
        if wish := self.wishes.get(model):
            wish.denied = not never
            headroom = answer.headroom_mib
            wish.in_way = frozenset(self._surely_in_way(model, headroom) if wish.denied else ())
        self._tell(
            f"{model} is denied: {_said(answer)}",
            lambda: core.lease_denied(
                self.now, model, never=never, detail="too big", headroom_mib=answer.headroom_mib
            ),
        )

    def _asks_transient(self, ask: AskTransient) -> None:
        name = ask.permit_id
        if name not in self.waiting:
            raise self.broken(f"memory is asked for {name}, which does not wait")
        self._no_swap_delayed(self.waiting[name])

        def run() -> None:
            answer = self.card.ask(
                self.now, LeaseKind.TRANSIENT, ask.tier, ask.preferred_mib, ask.minimum_mib, 0
            )
            self.transcript.event(self.now, f"(the broker on {name}: {_said(answer)})")
            self._errand(f"answer about {name}", lambda: self._answer_transient(name, answer))

        self._errand(
            f"ask the broker for {name}",
            run,
            lambda: self._tell(
                f"no answer about {name}", lambda: self.core.transient_unanswered(self.now, name)
            ),
        )

    def _answer_transient(self, name: str, answer: Granted | Denied) -> None:
        core = self.core
        if isinstance(answer, Granted):
            lease, mib = answer.lease.lease_id, answer.lease.granted_mib
            self.leases[lease] = name
            self._tell(
                f"{name} gets {lease}", lambda: core.transient_granted(self.now, name, lease, mib)
            )
            return
        never = answer.reason.value == "never_fits"
        if name in self.waiting:
            self.thirsty.add(self.waiting[name].model)
        self._tell(
            f"{name} is denied: {_said(answer)}",
            lambda: core.transient_denied(
                self.now, name, never=never, detail="too big", headroom_mib=answer.headroom_mib
            ),
        )

    def _returns(self, lease: str) -> None:
        if lease not in self.leases:
            raise self.broken(f"{lease} is returned, and is not the core's to return")
        del self.leases[lease]
        if lease in set(self.card.holding()):
            raise self.broken(f"{lease} is returned while memory is held under it")
        self._errand(f"return {lease}", lambda: self.card.release(self.now, lease))

    # -- loads -------------------------------------------------------------------------------

    def _starts_load(self, start: StartLoad) -> None:
        key = start.model
        if self.leases.pop(start.lease_id, "") != key:
            raise self.broken(f"{key} is loaded into {start.lease_id}, which is not for it")
        first, wish = self._first(key), self.wishes.pop(key, None)
        if first is None:
            raise self.broken(f"{key} is loaded for nobody")
        if self.told[key].state not in (State.COLD, State.FAILED):
            raise self.broken(f"{key} is loaded, and is {self.told[key].state}")
        if self.setup.sets:
            beside = {k for k in SIZES if self._takes_memory(k)} | {key}
            if not any(beside <= together for together in ALLOWED):
                raise self.broken(f"{sorted(beside)} may not live together")
        self.loads += 1
        self.loaded_for[key] = {r.permit_id for r in self.waiting.values() if r.model == key}
        if wish is not None and wish.first == first.permit_id:
            self.pinned[key] = first.permit_id

        def run() -> None:
            if not self.card.lives(self.now, start.lease_id):
                ruin()  # it ran out on the way
                return
            if self.card.engine(key) is not None:
                raise self.broken(f"{key} is loaded twice")
            self.count += 1
            engine = Engine(key, f"{key}-{self.count}", start.lease_id, SIZES[key][0])
            self.card.engines.append(engine)
            self._report(key)

        def ruin() -> None:
            self._errand(
                f"return {start.lease_id}", lambda: self.card.release(self.now, start.lease_id)
            )
            self._tell(
                f"the load of {key} is refused, nobody's fault",
                lambda: self.core.load_ended(self.now, key, None),
            )

        self._errand(f"load {key}", run, ruin)

    def _cancels(self, cancel: CancelLoad) -> None:
        key = cancel.model
        above = [r for r in self.waiting.values() if r.model != key]
        mine = [r for r in self.waiting.values() if r.model == key]
        worth = max((self._tier(r) for r in mine), default=Tier.BACKGROUND)
        if worth > Tier.BACKGROUND:
            raise self.broken(f"the load of {key} is given up, and {worth.name} waits for it")
        if not above:
            raise self.broken(f"the load of {key} is given up for nobody")
        self.pinned.pop(key, None)

        def run() -> None:
            engine = self.card.engine(key)
            if engine is not None and not engine.ready:
                self._gone(engine)
            elif engine is not None:
                self._begin_unload(Leaving(key, self.now, force=True))

        self._errand(f"give up loading {key}", run)

    # -- unloads -----------------------------------------------------------------------------

    def _starts_unload(self, unload: StartUnload) -> None:
        key = unload.model
        if self.told[key].state is not State.READY or key in self.leaving:
            raise self.broken(f"{key} is to be unloaded, and is {self.told[key].state}")
        self._why_unload(unload)
        self.swaps += 1
        leaving = self.leaving[key] = Leaving(key, 0, unload.force)

        def run() -> None:
            leaving.until_ms = self.now + unload.drain_ms
            self._begin_unload(leaving)

        def ruin() -> None:
            self.leaving.pop(key, None)
            self._tell(f"the unload of {key} fails", lambda: self.core.unload_ended(self.now, key))

        self._errand(f"unload {key}", run, ruin)

    def _begin_unload(self, leaving: Leaving) -> None:
        engine = self.card.engine(leaving.model)
        if engine is None or not engine.ready:
            if self.leaving.pop(leaving.model, None) is not None:
                self._tell(
                    f"{leaving.model} is gone already",
                    lambda: self.core.unload_ended(self.now, leaving.model),
                )
            return
        leaving.begun = True
        self.leaving[leaving.model] = leaving
        self._report(leaving.model)
        self.drain(leaving)

    def drain(self, leaving: Leaving) -> None:
        """Unload it once nothing runs, or when its time is up."""
        key = leaving.model
        engine = self.card.engine(key)
        if engine is None or not leaving.begun:
            return
        runs = [n for n in self.started if self._runs_on(n, engine)]
        if runs and self.now < leaving.until_ms:
            return
        if runs and not leaving.force:
            del self.leaving[key]
            self.by_hand.discard(key)
            self._report(key)
            self._tell(f"{key} is still busy", lambda: self.core.unload_ended(self.now, key))
            return
        self._gone(engine)

    def unload(self, key: str, *, force: bool) -> None:
        """Somebody wants it gone."""
        blocking = self.core.unload_asked(key, force=force)
        self.transcript.event(self.now, f"somebody wants {key} gone: {blocking} in the way")
        if blocking == 0:
            self.by_hand.add(key)
            leaving = self.leaving[key] = Leaving(key, self.now, force)
            self._errand(f"unload {key}", lambda: self._begin_unload(leaving))

    # -- time --------------------------------------------------------------------------------

    def wait(self, wait_ms: int) -> None:
        """Time passes; alarms ring in time, holders renew, drains end."""
        until, rung = self.now + wait_ms, 0
        self.card.renew(self.now)  # well before a lease ends: no wait is as long as one
        while (due := self._next_ms()) is not None and due <= until:
            self.now = max(self.now, due)
            self.card.renew(self.now)
            for leaving in list(self.leaving.values()):
                if leaving.begun and leaving.until_ms <= self.now:
                    self.drain(leaving)
            if (alarm := self.core.next_alarm_ms) is not None and alarm <= self.now:
                self._tell("tick", lambda: self.core.tick(self.now))
            rung += 1
            if rung > 2_000:
                raise self.broken("the alarm rings without end")
        self.now = until
        self.card.renew(self.now)
        self.check()

    def _next_ms(self) -> int | None:
        times = [x.until_ms for x in self.leaving.values() if x.begun and x.until_ms > self.now]
        if (alarm := self.core.next_alarm_ms) is not None:
            times.append(alarm)
        return min(times, default=None)

    # -- the end -----------------------------------------------------------------------------

    def settle(self) -> None:
        """From now on everything answers promptly and nobody new comes: everybody is served."""
        self.transcript.event(self.now, "== from here on all goes well ==")
        self.card.foreign_mib = self.card.excess_mib = 0
        for key in sorted(self.lost):
            self.find(key)
        began = self.now
        while self._under_way():
            if self.now - began > BOUND_MS:
                raise self.broken(f"stuck: {sorted(self.waiting)} wait, {self._stand()}")
            self._go_on()
        self._nothing_remains()

    def _under_way(self) -> bool:
        loading = any(not engine.ready for engine in self.card.engines)
        permits = self.waiting or self.core.permits
        return bool(permits or self.errands or self.leaving or loading)

    def _go_on(self) -> None:
        if self.errands:
            self.run(self.errands[0])
            return
        for name in [n for n in self.running if n not in self.started]:
            if name in self.running:
                self._come(name)
        self.wait(self._quiet_ms())
        for name, since in list(self.started.items()):
            if self.now - since >= RUN_MS and name in self.started:
                self.finish(name)
        for engine in [e for e in self.card.engines if not e.ready]:
            self.load_on(engine)
        for leaving in list(self.leaving.values()):
            self.drain(leaving)
        self.card.fade(2_000)

    def _quiet_ms(self) -> int:
        """How long nothing moves but the core's clock."""
        card = self.card
        moves = (
            self.started
            or self.leaving
            or card.fading_mib
            or not all(engine.ready for engine in card.engines)
        )
        if moves:
            return STEP_MS
        alarm = self.core.next_alarm_ms
        if alarm is None:
            raise self.broken(f"stuck without an alarm: {sorted(self.waiting)} {self._stand()}")
        return max(STEP_MS, alarm - self.now)

    def _come(self, name: str) -> None:
        """It starts; if it had run already, its caller only has to leave."""
        if name in self.core.permits and not self.core.permits[name].seen:
            self.start(name)
        else:
            self.leave(name)

    def _stand(self) -> str:
        models = {key: facts.state.name for key, facts in self.told.items()}
        return f"models {models}, permits {sorted(self.core.permits)}, free {self.card.free_mib}"

    def _nothing_remains(self) -> None:
        for _ in range(4):  # leases whose answer was lost run out
            self.wait(TTL_MS // 3)
        held = set(self.card.holding())
        left = {lease.lease_id for lease in self.card.ledger.leases(self.now)} - held
        if left or self.leases:
            raise self.broken(f"leases nobody holds: {sorted(left)}, {self.leases}")
        for key in SIZES:
            if self.told[key].state is State.READY and key not in self.leaving:
                self.unload(key, force=False)
        while self.errands or self.leaving:
            self._go_on()
        if self.card.ledger.leases(self.now) or self.core.in_use or self.core.permits:
            raise self.broken("not everything is back")


def _said(answer: Granted | Denied) -> str:
    if isinstance(answer, Granted):
        return f"{answer.lease.granted_mib} MiB as {answer.lease.lease_id}"
    return f"{answer.reason.value}, headroom {answer.headroom_mib}"
