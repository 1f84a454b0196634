"""The ledger: each rule by itself, then thousands of random histories against a dumb oracle."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.broker.core import (
    Ask,
    Budget,
    DenialReason,
    Denied,
    Floors,
    Full,
    Granted,
    Lease,
    LeaseKind,
    Ledger,
    Tier,
)

FLOORS = Floors(paid_mib=10, sub_mib=20, free_mib=30, background_mib=40)
BUDGET = Budget(total_mib=1000, free_mib=None, reserve_mib=0, floors=FLOORS)
ASK = Ask("a", "llm/m", "cpu", LeaseKind.RESIDENT, Tier.PAID, 100, 100, 30_000, "")


def granted(ledger: Ledger, ask: Ask, budget: Budget = BUDGET, now: int = 0) -> Lease:
    outcome = ledger.acquire(ask, budget, now)
    assert isinstance(outcome, Granted), outcome
    return outcome.lease


def headroom(ledger: Ledger, tier: Tier, budget: Budget = BUDGET, now: int = 0) -> int:
    return ledger.memory("cpu", budget, now).headroom_mib[tier]


def test_grants_the_preferred_amount_and_counts_it() -> None:
    ledger = Ledger(8)
    lease = granted(ledger, ASK, now=5)
    assert (lease.granted_mib, lease.granted_unix_ms, lease.expires_unix_ms) == (100, 5, 30_005)
    assert headroom(ledger, Tier.PAID) == 1000 - 100 - 10


def test_grants_between_minimum_and_preferred_what_there_is() -> None:
    lease = granted(Ledger(8), replace(ASK, preferred_mib=5000, minimum_mib=500))
    assert lease.granted_mib == 990


@pytest.mark.parametrize(
    ("tier", "most"), [(Tier.PAID, 990), (Tier.SUB, 980), (Tier.FREE, 970), (Tier.BACKGROUND, 960)]
)
def test_each_tier_leaves_its_own_floor(tier: Tier, most: int) -> None:
    ask = replace(ASK, tier=tier)
    too_much = replace(ask, preferred_mib=most + 1, minimum_mib=most + 1)
    assert Ledger(8).acquire(too_much, BUDGET, 0) == Denied(DenialReason.NEVER_FITS, most, most)
    assert granted(Ledger(8), replace(ask, preferred_mib=most, minimum_mib=most))


def test_reserve_is_lent_to_nobody() -> None:
    budget = replace(BUDGET, reserve_mib=200)
    assert budget.ceiling_mib(Tier.PAID) == 790
    assert headroom(Ledger(8), Tier.PAID, budget) == 790


def test_full_now_and_full_for_ever_are_told_apart() -> None:
    ledger = Ledger(8)
    granted(ledger, replace(ASK, preferred_mib=900, minimum_mib=900))
    now = ledger.acquire(replace(ASK, lease_id="b"), BUDGET, 0)
    ever = ledger.acquire(replace(ASK, lease_id="b", minimum_mib=991), BUDGET, 0)
    assert now == Denied(DenialReason.NO_HEADROOM, 90, 990)
    assert ever == Denied(DenialReason.NEVER_FITS, 90, 990)


def test_what_must_be_left_is_not_granted_and_not_leased() -> None:
    ledger = Ledger(8)
    ask = replace(ASK, preferred_mib=5000, minimum_mib=500, leave_mib=300)
    assert granted(ledger, ask).granted_mib == 690
    assert headroom(ledger, Tier.PAID) == 300
    peak = replace(ASK, lease_id="b", preferred_mib=300, minimum_mib=300)
    assert granted(ledger, peak).granted_mib == 300


def test_what_must_be_left_decides_between_now_and_never() -> None:
    ledger = Ledger(8)
    ask = replace(ASK, preferred_mib=700, minimum_mib=690, leave_mib=300)
    assert granted(ledger, replace(ask, lease_id="fits")).granted_mib == 690
    assert ledger.acquire(ask, BUDGET, 0) == Denied(DenialReason.NO_HEADROOM, 300, 990)
    one_more = ledger.acquire(replace(ask, leave_mib=301), BUDGET, 0)
    assert one_more == Denied(DenialReason.NEVER_FITS, 300, 990)


def test_a_grant_is_lowered_on_request_and_never_raised() -> None:
    ledger = Ledger(8)
    granted(ledger, ASK)
    ledger.renew("a", 40, 0, 0, shrink_to_mib=60)
    assert (ledger.get("a").granted_mib, headroom(ledger, Tier.PAID)) == (60, 930)
    ledger.renew("a", 40, 0, 0)
    ledger.renew("a", 40, 0, 0, shrink_to_mib=80)
    assert ledger.get("a").granted_mib == 60
    measured = replace(BUDGET, free_mib=960)
    assert headroom(ledger, Tier.PAID, measured) == 930


def test_a_crashed_holder_keeps_its_right_until_it_ends_and_strands_nothing() -> None:
    ledger = Ledger(8)
    granted(ledger, replace(ASK, preferred_mib=900, minimum_mib=900))
    ledger.renew("a", 900, 0, 0)
    empty_again = replace(BUDGET, free_mib=1000)
    assert headroom(ledger, Tier.PAID, empty_again, now=29_999) == 90
    assert headroom(ledger, Tier.PAID, empty_again, now=30_000) == 990


def test_an_absurd_report_takes_nothing_from_others_where_the_device_measures() -> None:
    ledger = Ledger(8)
    granted(ledger, ASK)
    ledger.renew("a", 1 << 40, 0, 0)
    assert headroom(ledger, Tier.PAID, replace(BUDGET, free_mib=900)) == 890


def test_memory_taken_up_is_counted_once() -> None:
    ledger = Ledger(8)
    granted(ledger, ASK)
    measured = replace(BUDGET, free_mib=1000)
    assert headroom(ledger, Tier.PAID, measured) == 890  # promised
    ledger.renew("a", 60, 0, 0)
    measured = replace(BUDGET, free_mib=940)
    assert headroom(ledger, Tier.PAID, measured) == 890  # 60 of it moved from promise to use
    assert headroom(ledger, Tier.PAID) == 890  # and the same where only reports are known


def test_use_beyond_the_grant_counts_as_used() -> None:
    ledger = Ledger(8)
    granted(ledger, ASK)
    ledger.renew("a", 150, 0, 0)
    assert headroom(ledger, Tier.PAID) == 1000 - 150 - 10
    assert ledger.memory("cpu", BUDGET, 0).unmaterialised_mib == 0


def test_foreign_use_is_what_no_holder_reports() -> None:
    ledger = Ledger(8)
    granted(ledger, ASK)
    ledger.renew("a", 100, 0, 0)
    assert ledger.memory("cpu", replace(BUDGET, free_mib=600), 0).foreign_mib == 300
    assert ledger.memory("cpu", BUDGET, 0).foreign_mib == 0


def test_the_same_request_is_the_same_lease_until_it_ends() -> None:
    ledger = Ledger(8)
    first = granted(ledger, replace(ASK, request_id="r"))
    assert ledger.acquire(replace(ASK, lease_id="b", request_id="r"), BUDGET, 1) == first
    other = replace(ASK, lease_id="c", holder="llm/other", request_id="r")
    assert granted(ledger, other).lease_id == "c"  # ids are each holder's own
    ledger.release("a", 2)
    again = replace(ASK, lease_id="d", request_id="r")
    assert granted(ledger, again, now=3).lease_id == "d"


def test_expires_at_its_time_and_not_before() -> None:
    ledger = Ledger(8)
    granted(ledger, replace(ASK, request_id="r"))
    assert [lease.lease_id for lease in ledger.leases(29_999)] == ["a"]
    assert ledger.repeated("llm/m", "r", 30_000) is None
    assert ledger.leases(30_000) == []
    assert headroom(ledger, Tier.PAID, now=30_000) == 990
    assert ledger.renew("a", 0, 0, 30_000) is None
    assert ledger.release("a", 30_000) is None


def test_renewal_extends_and_never_shortens() -> None:
    ledger = Ledger(8)
    granted(ledger, ASK)
    ledger.renew("a", 0, 0, 20_000)
    assert ledger.get("a").expires_unix_ms == 50_000
    ledger.renew("a", 0, 1, 21_000)
    assert ledger.get("a").expires_unix_ms == 50_000
    assert [lease.lease_id for lease in ledger.leases(49_999)] == ["a"]
    assert ledger.leases(50_000) == []


def test_is_bounded_and_says_so() -> None:
    ledger = Ledger(1)
    granted(ledger, ASK)
    assert ledger.acquire(replace(ASK, lease_id="b"), BUDGET, 0) == Full(1)
    assert granted(ledger, replace(ASK, lease_id="b"), now=30_000)  # the first has run out


def test_lists_oldest_first_and_by_filter() -> None:
    ledger = Ledger(8)
    for name, holder, device in [
        ("x", "llm/m", "cpu"),
        ("b", "matte/n", "cpu"),
        ("a", "llm/m", "g"),
    ]:
        granted(ledger, replace(ASK, lease_id=name, holder=holder, device=device))
    ledger.renew("x", 1, 0, 1)
    assert [lease.lease_id for lease in ledger.leases(2)] == ["x", "b", "a"]
    assert [lease.lease_id for lease in ledger.leases(2, "llm/")] == ["x", "a"]
    assert [lease.lease_id for lease in ledger.leases(2, "llm/", "g")] == ["a"]


def test_short_leases_with_long_times_to_live_do_not_pile_up() -> None:
    ledger = Ledger(8)
    for n in range(5000):
        granted(ledger, replace(ASK, lease_id=str(n), ttl_ms=10**9))
        ledger.release(str(n), 0)
    assert len(ledger._due) <= 64 + 2


def test_resume_gives_at_least_one_period_and_at_most_the_longest() -> None:
    ledger = Ledger(8)
    granted(ledger, ASK, now=0)
    granted(ledger, replace(ASK, lease_id="b"), now=10_000_000)  # by a clock since set back
    ledger.replay(Granted(10_000_000, replace(ledger.get("b"), lease_id="c", ttl_ms=1000)))
    ledger.resume(1_000_000, 600_000)
    ends = {lease.lease_id: lease.expires_unix_ms for lease in ledger.leases(1_000_000)}
    assert ends == {"b": 1_600_000, "c": 1_600_000}  # "a" had run out while the broker lived


# --- against an oracle that recomputes everything from a plain list ---


@dataclass
class Oracle:
    total: int
    leases: list[Lease] = field(default_factory=list)

    def live(self, now: int) -> list[Lease]:
        self.leases = [lease for lease in self.leases if lease.expires_unix_ms > now]
        return self.leases

    def headroom(self, tier: Tier, free: int | None, now: int) -> int:
        live = self.live(now)
        if free is None:
            free = max(0, self.total - sum(lease.materialised_mib for lease in live))
        promised = sum(max(0, x.granted_mib - x.materialised_mib) for x in live)
        lent = sum(x.granted_mib for x in live)
        return max(0, min(free - promised, self.total - lent) - FLOORS.of(tier))


ACQUIRE = st.tuples(
    st.just("acquire"),
    st.sampled_from(Tier),
    st.integers(1, 600),
    st.integers(1, 600),
    st.sampled_from([0, 0, 1, 300]),
    st.integers(1, 5000),
    st.sampled_from(["", "r1", "r2"]),
)
RENEW = st.tuples(
    st.just("renew"),
    st.integers(0, 9),
    st.integers(0, 700),
    st.integers(0, 5000),
    st.sampled_from([0, 0, 50, 700]),
)
RELEASE = st.tuples(st.just("release"), st.integers(0, 9))
WAIT = st.tuples(st.just("wait"), st.integers(0, 4000))
FREE = st.tuples(st.just("free"), st.one_of(st.none(), st.integers(0, 1000)))


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(ACQUIRE, ACQUIRE, RENEW, RELEASE, WAIT, FREE), max_size=60))
def test_agrees_with_the_oracle(history: list[tuple[Any, ...]]) -> None:
    ledger, oracle, now, free = Ledger(6), Oracle(1000), 0, None
    names: list[str] = []
    for step, (what, *args) in enumerate(history):
        budget = replace(BUDGET, free_mib=free)
        if what == "acquire":
            tier, a, b, leave, ttl, request = args
            ask = replace(ASK, lease_id=f"l{step}", tier=tier, preferred_mib=max(a, b))
            ask = replace(ask, minimum_mib=min(a, b), ttl_ms=ttl, request_id=request)
            ask = replace(ask, leave_mib=leave)
            room = oracle.headroom(tier, free, now)
            known = [x for x in oracle.live(now) if request and x.request_id == request]
            match ledger.acquire(ask, budget, now):
                case Lease() as lease:
                    assert known == [lease]
                case Full():
                    assert not known
                    assert len(oracle.live(now)) == 6
                case Denied() as denied:
                    assert not known
                    assert room < ask.minimum_mib + leave
                    assert denied.headroom_mib == room
                    ever = ask.minimum_mib + leave <= 1000 - FLOORS.of(tier)
                    assert (denied.reason is DenialReason.NO_HEADROOM) == ever
                case Granted(lease=lease):
                    assert not known
                    assert ask.minimum_mib <= lease.granted_mib
                    assert lease.granted_mib == min(ask.preferred_mib, room - leave)
                    oracle.leases.append(lease)
                    names.append(lease.lease_id)
                    # Never over-granted: what remains is at least this tier's floor.
                    used = sum(max(x.granted_mib, x.materialised_mib) for x in oracle.leases)
                    if free is None:
                        assert used + FLOORS.of(tier) + leave <= 1000
                    lent = sum(x.granted_mib for x in oracle.leases)
                    assert lent + FLOORS.of(tier) + leave <= 1000
        elif what == "wait":
            now += args[0]
        elif what == "free":
            free = args[0]
        elif names:
            name = names[args[0] % len(names)]
            found = [x for x in oracle.live(now) if x.lease_id == name]
            if what == "release":
                assert (ledger.release(name, now) is not None) == bool(found)
                assert ledger.release(name, now) is None
                oracle.leases = [x for x in oracle.leases if x.lease_id != name]
            else:
                entry = ledger.renew(name, args[1], args[2], now, shrink_to_mib=args[3])
                assert (entry is not None) == bool(found)
                for old in found:
                    until = max(old.expires_unix_ms, now + (args[2] or old.ttl_ms))
                    new = replace(
                        old,
                        materialised_mib=args[1],
                        expires_unix_ms=until,
                        renewed_unix_ms=now,
                    )
                    if args[3]:
                        new = replace(new, granted_mib=min(new.granted_mib, args[3]))
                    oracle.leases[oracle.leases.index(old)] = new
        budget = replace(BUDGET, free_mib=free)
        assert ledger.leases(now) == oracle.live(now)
        rooms = ledger.memory("cpu", budget, now).headroom_mib
        assert rooms == {tier: oracle.headroom(tier, free, now) for tier in Tier}
    # Nothing is stranded: once every lease has run out, all of it can be lent again.
    assert headroom(ledger, Tier.PAID, now=now + 10_000) == 990
    assert ledger.memory("cpu", BUDGET, now + 10_000).leased_mib == 0
