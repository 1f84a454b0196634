"""Which worker takes the next connection."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.workers.choosing import Loads


def hand(loads: Loads) -> int:
    slot = loads.order()[0]
    loads.handed(slot)
    return slot


def test_the_one_with_the_fewest_and_among_equals_in_turn() -> None:
    loads = Loads()
    assert loads.order() == []
    for slot in range(3):
        loads.join(slot)
    assert [hand(loads) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    loads.closed(1, 2)
    assert [hand(loads) for _ in range(2)] == [1, 1]


def test_who_has_just_come_takes_what_it_can_and_who_has_gone_takes_none() -> None:
    loads = Loads()
    loads.join(0)
    assert [hand(loads) for _ in range(4)] == [0] * 4
    loads.join(1)
    assert [hand(loads) for _ in range(4)] == [1] * 4
    loads.leave(0)
    loads.closed(0, 3)  # said before it went
    assert loads.order() == [1]
    loads.join(0)
    assert loads.open_in(0) == 0


def test_a_turn_that_was_not_taken_does_not_count() -> None:
    loads = Loads()
    for slot in range(2):
        loads.join(slot)
    first = loads.order()
    assert loads.order() == first == [0, 1]


@settings(deadline=None)  # the machine may be busy
@given(st.integers(1, 8), st.integers(1, 300), st.integers(0, 2**32))
def test_open_connections_differ_by_one_while_none_ends(
    workers: int, count: int, seed: int
) -> None:
    loads = Loads()
    for slot in random.Random(seed).sample(range(workers), workers):
        loads.join(slot)
    for _ in range(count):
        hand(loads)
    each = [loads.open_in(slot) for slot in range(workers)]
    assert max(each) - min(each) <= 1
    assert sum(each) == count
