"""Who is asked to shrink: the lowest tier first, in proportion, never above the refused tier."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.broker.core import Lease, LeaseKind, Pressure, Shrink, Tier
from services.broker.core.pressure import shares

LEASE = Lease("a", "llm/a", "cpu", LeaseKind.RESIDENT, Tier.FREE, 100, 0, 0, 30_000, 30_000, "")


def lease(name: str, mib: int, tier: Tier = Tier.FREE) -> Lease:
    return replace(LEASE, lease_id=name, holder=f"llm/{name}", granted_mib=mib, tier=tier)


def told(leases: list[Lease], tier: Tier, missing: int) -> dict[str, int]:
    return {each.lease_id: each.shrink_mib for each in shares(leases, tier, missing)}


def test_each_gives_in_proportion_to_what_it_holds() -> None:
    assert told([lease("a", 300), lease("b", 100)], Tier.PAID, 200) == {"a": 150, "b": 50}


def test_the_lowest_tier_gives_first() -> None:
    leases = [lease("a", 300, Tier.SUB), lease("b", 100, Tier.BACKGROUND), lease("c", 100)]
    assert told(leases, Tier.PAID, 80) == {"b": 80}
    assert told(leases, Tier.PAID, 350) == {"b": 100, "c": 100, "a": 150}


def test_nobody_of_the_refused_tier_or_above_is_asked() -> None:
    leases = [lease("a", 300, Tier.SUB), lease("b", 300, Tier.PAID)]
    assert told(leases, Tier.SUB, 100) == {}
    assert told(leases, Tier.PAID, 100) == {"a": 100}


def test_the_peak_of_a_request_is_left_alone() -> None:
    peak = replace(lease("a", 300), kind=LeaseKind.TRANSIENT)
    assert told([peak, lease("b", 10)], Tier.PAID, 100) == {"b": 10}


def test_use_beyond_the_grant_counts() -> None:
    assert told([replace(lease("a", 100), materialised_mib=500)], Tier.PAID, 400) == {"a": 400}


@given(
    st.lists(st.tuples(st.integers(0, 500), st.sampled_from(Tier)), max_size=12),
    st.sampled_from(Tier),
    st.integers(1, 5000),
)
def test_shares_cover_what_is_missing_and_ask_nobody_for_more_than_it_holds(
    sizes: list[tuple[int, Tier]], refused: Tier, missing: int
) -> None:
    leases = {str(n): lease(str(n), mib, tier) for n, (mib, tier) in enumerate(sizes)}
    asked = told(list(leases.values()), refused, missing)
    assert all(0 < mib <= leases[name].granted_mib for name, mib in asked.items())
    can_give = sum(x.granted_mib for x in leases.values() if x.tier < refused)
    together = sum(asked.values())
    assert min(missing, can_give) <= together <= min(missing, can_give) + len(asked)


def test_a_storm_is_one_message_a_lease_and_period() -> None:
    pressure, leases = Pressure(1000), [lease("a", 300), lease("b", 100)]
    first = pressure.ask(leases[:1], Tier.PAID, 30, 0)
    assert first == [Shrink("a", "llm/a", 30, Tier.PAID)]
    assert [x.lease_id for x in pressure.ask(leases, Tier.PAID, 200, 600)] == ["b"]
    assert pressure.ask(leases, Tier.PAID, 200, 999) == []
    assert [x.lease_id for x in pressure.ask(leases, Tier.PAID, 200, 1000)] == ["a"]
    assert [x.lease_id for x in pressure.ask(leases, Tier.PAID, 200, 1600)] == ["b"]


def test_leases_that_were_asked_are_forgotten_after_the_period() -> None:
    pressure = Pressure(1000)
    for n in range(5000):
        pressure.ask([lease(str(n), 10)], Tier.PAID, 5, n * 10)
    assert len(pressure._asked) <= 100
