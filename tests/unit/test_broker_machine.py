"""The ledger against a device on which memory is really taken: random lives of holders.

The oracle is dumb: it knows the true use of everybody and adds it all up each time. Holders take
up what they were granted, and more; report late; give back; shrink; release; crash (their memory
comes back at once, the lease only at its end); miss their expiry. Programs without a lease come and
go. The broker is killed and comes back with its journal.

`COHABIT_DEEP=1` runs thousands of lives in place of hundreds.
"""

import os
from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.broker.core import (
    Ask,
    Budget,
    DenialReason,
    Denied,
    Entry,
    Floors,
    Full,
    Granted,
    Lease,
    LeaseKind,
    Ledger,
    Tier,
)

TOTAL, RESERVE, MAX_TTL, MAX_LEASES = 1000, 50, 60_000, 6
FLOORS = Floors(paid_mib=10, sub_mib=20, free_mib=30, background_mib=40)
TIERS = st.sampled_from(Tier)
MIB = st.integers(1, 1000)
WHO = st.integers(0, 99)


@dataclass
class Holder:
    """One who was granted a lease, and what it really does."""

    lease: Lease
    used: int = 0
    alive: bool = True
    late: bool = False
    """Its lease has run out once: whatever it was promised, it is no more."""

    @property
    def claim(self) -> int:
        return max(self.lease.granted_mib, self.used)


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.journal = Ledger(MAX_LEASES), list[Entry]()
        self.now, self.names, self.foreign = 0, 0, 0
        self.holders: list[Holder] = []

    # --- the truth, added up anew each time ---

    @property
    def free(self) -> int:
        return TOTAL - self.foreign - sum(holder.used for holder in self.holders)

    def live(self) -> list[Holder]:
        return [x for x in self.holders if x.lease.expires_unix_ms > self.now]

    def sound(self) -> list[Holder]:
        """Those whose every claim the broker must honour."""
        return [x for x in self.live() if x.alive and not x.late]

    def spoken_for(self) -> int:
        """What sound holders may still take up."""
        return sum(x.claim - x.used for x in self.sound())

    def left(self, tier: Tier) -> int:
        return max(0, self.free - self.spoken_for() - RESERVE - FLOORS.of(tier))

    def budget(self) -> Budget:
        return Budget(TOTAL, self.free, RESERVE, FLOORS)

    def headroom(self, tier: Tier) -> int:
        return self.ledger.memory("gpu0", self.budget(), self.now).headroom_mib[tier]

    def pick(self, who: int, among: list[Holder]) -> Holder | None:
        return among[who % len(among)] if among else None

    def renew(self, holder: Holder, shrink_to: int = 0, ttl: int = 0) -> None:
        """Report what is in use; whoever hears that its lease is gone stops using it."""
        entry = self.ledger.renew(
            holder.lease.lease_id, holder.used, ttl, self.now, shrink_to_mib=shrink_to
        )
        assert (entry is not None) == (holder in self.live())
        if entry is None:
            self.holders.remove(holder)
        else:
            self.journal.append(entry)
            holder.lease = self.ledger.get(holder.lease.lease_id)

    # --- what happens ---

    @rule(
        tier=TIERS,
        a=MIB,
        b=MIB,
        leave=st.sampled_from([0, 0, 0, 5, 200]),
        ttl=st.one_of(st.integers(1, 3000), st.just(MAX_TTL)),
        kind=st.sampled_from(LeaseKind),
    )
    def acquire(self, tier: Tier, a: int, b: int, leave: int, ttl: int, kind: LeaseKind) -> None:
        self.names += 1
        name, preferred, minimum = f"l{self.names}", max(a, b), min(a, b)
        before, kept, lives = self.left(tier), RESERVE + FLOORS.of(tier), len(self.live())
        ask = Ask(name, "llm/m", "gpu0", kind, tier, preferred, minimum, ttl, "", leave)
        match self.ledger.acquire(ask, self.budget(), self.now):
            case Full():
                assert lives == MAX_LEASES
            case Denied() as denied:
                never = minimum + leave > TOTAL - kept
                assert (denied.reason is DenialReason.NEVER_FITS) == never
                assert denied.headroom_mib < minimum + leave
                assert denied.headroom_mib <= before
            case Granted(lease=lease) as entry:
                assert minimum <= lease.granted_mib <= preferred
                assert lease.granted_mib + leave <= before
                self.journal.append(entry)
                self.holders.append(Holder(lease))
                lent = sum(holder.lease.granted_mib for holder in self.live())
                assert lent + kept + leave <= TOTAL
            case Lease():
                raise AssertionError("nothing was asked twice")

    @rule(who=WHO, mib=MIB)
    def take_up(self, who: int, mib: int) -> None:
        """A promise is kept: up to its grant, a holder finds the memory free."""
        if holder := self.pick(who, self.sound()):
            holder.used = max(holder.used, min(mib, holder.lease.granted_mib))
            assert self.free >= 0

    @rule(who=WHO)
    def load(self, who: int) -> None:
        """What most do: take up all of the grant and report it."""
        if holder := self.pick(who, self.sound()):
            holder.used = holder.claim
            self.renew(holder)

    @rule(who=WHO, mib=MIB)
    def take_too_much(self, who: int, mib: int) -> None:
        """Beyond the grant: of what was promised to nobody."""
        if holder := self.pick(who, self.sound()):
            beyond = min(mib, max(0, self.free - self.spoken_for()))
            holder.used = holder.claim + beyond

    @rule(who=WHO, ttl=st.sampled_from([0, 0, 1, MAX_TTL]))
    def report(self, who: int, ttl: int) -> None:
        if holder := self.pick(who, [x for x in self.holders if x.alive]):
            self.renew(holder, ttl=ttl)

    @rule()
    def everybody_reports(self) -> None:
        for holder in [x for x in self.holders if x.alive]:
            self.renew(holder)

    @rule(who=WHO, mib=MIB)
    def give_back(self, who: int, mib: int) -> None:
        """Some of it, to take it up again later: it is reported at once."""
        if holder := self.pick(who, self.sound()):
            holder.used = min(mib, holder.used)
            self.renew(holder)

    @rule(who=WHO, mib=MIB)
    def shrink(self, who: int, mib: int) -> None:
        """Some of it for good: the memory comes back first, then the grant is lowered."""
        if holder := self.pick(who, self.sound()):
            granted = holder.lease.granted_mib
            holder.used = min(mib, holder.used)
            self.renew(holder, shrink_to=mib)
            assert holder.lease.granted_mib == min(mib, granted)

    @rule(who=WHO)
    def release(self, who: int) -> None:
        if holder := self.pick(who, [x for x in self.holders if x.alive]):
            lives = holder in self.live()
            self.holders.remove(holder)
            entry = self.ledger.release(holder.lease.lease_id, self.now)
            assert (entry is not None) == lives
            if entry:
                self.journal.append(entry)

    @rule(who=WHO)
    def crash(self, who: int) -> None:
        if holder := self.pick(who, [x for x in self.holders if x.alive]):
            holder.used, holder.alive = 0, False

    @rule(mib=st.integers(0, TOTAL))
    def strangers_come_and_go(self, mib: int) -> None:
        """As those of the simulated device: never of what is promised."""
        promised = self.ledger.promised_mib("gpu0", self.now)
        at_most = self.foreign + max(0, self.free - promised)
        self.foreign = min(mib, at_most)

    @rule(ms=st.one_of(st.integers(0, 2000), st.integers(0, MAX_TTL)))
    def wait(self, ms: int) -> None:
        self.now += ms
        for holder in self.holders:
            holder.late = holder.late or holder not in self.live()

    @precondition(lambda self: self.journal)
    @rule(away=st.sampled_from([0, 100, 10 * MAX_TTL]))
    def the_broker_is_killed(self, away: int) -> None:
        heard = self.journal[-1].at_unix_ms
        survivors = {x.lease.lease_id: x for x in self.holders if x.lease.expires_unix_ms > heard}
        self.now += away
        self.ledger = Ledger(MAX_LEASES)
        for entry in self.journal:
            self.ledger.replay(entry)
        self.ledger.resume(self.now, MAX_TTL)
        known = {lease.lease_id: lease for lease in self.ledger.leases(self.now)}
        assert set(survivors) <= set(known)
        others = [x for x in self.holders if x.lease.lease_id not in survivors]
        # A lease that ran out unheard of, and whose holder is gone, is back for one period.
        back = [
            survivors.get(name) or Holder(known[name], alive=False, late=True) for name in known
        ]
        for holder in back:
            holder.lease = known[holder.lease.lease_id]
            assert holder.lease.expires_unix_ms >= self.now + holder.lease.ttl_ms
        self.holders = others + back
        self.journal = [Granted(self.now, lease) for lease in known.values()]

    # --- what always holds ---

    @invariant()
    def every_promise_can_be_kept(self) -> None:
        assert self.free >= self.spoken_for()

    @invariant()
    def the_ledger_knows_the_living(self) -> None:
        assert self.ledger.leases(self.now) == [holder.lease for holder in self.live()]

    @invariant()
    def nothing_is_forgotten_and_nothing_is_counted_twice(self) -> None:
        # What stale reports and the rights of the dead may cost, and no more.
        stale = sum(abs(x.used - x.lease.materialised_mib) for x in self.live())
        dead = sum(x.lease.granted_mib for x in self.live() if not x.alive or x.late)
        for tier in Tier:
            assert self.left(tier) - stale - dead <= self.headroom(tier) <= self.left(tier)

    def teardown(self) -> None:
        """Nothing is stranded: once all have run out, all but what is really used can be lent."""
        self.now += 20 * MAX_TTL
        for tier in Tier:
            kept = RESERVE + FLOORS.of(tier)
            assert self.headroom(tier) == max(0, self.free - kept)
        assert self.ledger.leases(self.now) == []


Lives.TestCase.settings = settings(
    max_examples=5000 if os.environ.get("COHABIT_DEEP") else 200,
    stateful_step_count=40,
    deadline=None,
)
TestLives = Lives.TestCase
