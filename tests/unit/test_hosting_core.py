"""The life of instances by the table; delays that grow within bounds; what a load finds."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hosting.core import (
    FIRST_DELAY_MS,
    MOST_DELAY_MS,
    STABLE_MS,
    TRANSITIONS,
    Answer,
    IllegalStep,
    Life,
    Record,
    Seen,
    State,
    Step,
    answer_load,
    model_state,
)

NOW = 1_800_000_000_000


@pytest.mark.parametrize(("state", "step"), list(product(State, Step)))
def test_a_step_is_in_the_table_or_refused(state: State, step: Step) -> None:
    life = Life(state)
    if (state, step) in TRANSITIONS:
        life.take(step, NOW)
        assert life.state is TRANSITIONS[state, step]
    else:
        with pytest.raises(IllegalStep, match=f"{step.name} in {state.name}"):
            life.take(step, NOW)
        assert life == Life(state)


def test_every_instance_ends_cold_or_failed() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.COLD, State.FAILED}
    assert {state for (_, step), state in TRANSITIONS.items() if step is not Step.RENEW} == set(
        State
    ) - {State.LOADING}


def test_what_renews_loads_again_as_if_it_had_never_served() -> None:
    life = Life()
    life.take(Step.READY, NOW)
    life.take(Step.RENEW, NOW + STABLE_MS)
    assert life.state is State.LOADING
    assert life.served_ms(NOW + STABLE_MS) is None
    life.take(Step.READY, NOW + 2 * STABLE_MS)
    assert life.served_ms(NOW + 2 * STABLE_MS + 5) == 5


@given(st.lists(st.tuples(st.sampled_from(Step), st.integers(0, 2 * STABLE_MS)), max_size=60))
def test_any_history_keeps_the_promises(history: list[tuple[Step, int]]) -> None:
    """One instance after the other, as the table lets them live and die."""
    life, record, now, ready_ms = Life(), Record(), NOW, None
    for step, passed_ms in history:
        now += passed_ms
        state = life.state
        try:
            life.take(step, now)
        except IllegalStep:
            assert (state, step) not in TRANSITIONS
            continue
        if step is Step.READY:
            ready_ms = now
            record.clear()
            assert record.cooling_ms(now) == 0
        if step is Step.RENEW:
            ready_ms = None
        served_ms = None if ready_ms is None else now - ready_ms
        assert life.served_ms(now) == served_ms
        if step is Step.FAIL:
            failures = record.failures
            record.add("word", "Words.", life.served_ms(now), now)
            assert (record.reason, record.message) == ("word", "Words.")
            stable = served_ms is not None and served_ms >= STABLE_MS
            assert record.failures == (1 if stable else failures + 1)
            free = served_ms is not None and record.failures == 1
            assert (record.cooling_ms(now) == 0) == free
        assert 0 <= record.cooling_ms(now) <= MOST_DELAY_MS
        if life.state in (State.COLD, State.FAILED):
            life, ready_ms = Life(), None


def test_failed_loads_wait_longer_each_time_up_to_a_bound() -> None:
    record, delays = Record(), []
    for _ in range(100):
        record.add("word", "Words.", None, NOW)
        delays.append(record.cooling_ms(NOW))
    assert delays[:4] == [FIRST_DELAY_MS, 2000, 4000, 8000]
    assert all(a <= b for a, b in pairwise(delays))
    assert delays[-1] == MOST_DELAY_MS


def _crash(record: Record, served_ms: int) -> int:
    record.clear()  # it was READY
    record.add("word", "Words.", served_ms, NOW)
    return record.cooling_ms(NOW)


def test_the_first_crash_is_free_and_the_next_are_not() -> None:
    record = Record()
    assert [_crash(record, 10) for _ in range(4)] == [0, 1000, 2000, 4000]


def test_an_engine_that_served_long_is_forgiven() -> None:
    record = Record()
    for _ in range(5):
        record.add("word", "Words.", None, NOW)
    assert _crash(record, STABLE_MS - 1) > 0
    assert _crash(record, STABLE_MS) == 0
    assert _crash(record, 10) == FIRST_DELAY_MS


def test_cooling_runs_out_and_ends_with_an_unload() -> None:
    record = Record()
    record.add("word", "Words.", None, NOW)
    assert [record.cooling_ms(NOW + ms) for ms in (0, 400, 1000, 9000)] == [1000, 600, 0, 0]
    record.clear()
    assert record.cooling_ms(NOW) == 0


@pytest.mark.parametrize(
    ("instances", "failed", "state"),
    [
        ([], False, State.COLD),
        ([], True, State.FAILED),
        ([State.DRAINING, State.LOADING, State.READY], False, State.READY),
        ([State.DRAINING, State.LOADING], False, State.LOADING),
        ([State.DRAINING], False, State.DRAINING),
        ([State.READY], True, State.READY),
        ([State.LOADING], True, State.LOADING),
    ],
)
def test_a_model_is_in_the_best_state_there_is(
    instances: list[State], failed: bool, state: State
) -> None:
    record = Record()
    if failed:
        record.add("word", "Words.", None, NOW)
    assert model_state(instances, record) is state


READY, LOADING, DRAINING = Seen(State.READY), Seen(State.LOADING), Seen(State.DRAINING)
CRASHED = Seen(State.DRAINING, leaving=True)


@pytest.mark.parametrize(
    ("instances", "most", "answer"),
    [
        ([], 1, (Answer.START, -1)),
        ([READY], 2, (Answer.START, -1)),
        ([DRAINING], 2, (Answer.START, -1)),
        ([LOADING, READY], 2, (Answer.JOIN, 1)),
        ([LOADING, LOADING], 2, (Answer.JOIN, 0)),
        ([DRAINING, LOADING], 2, (Answer.JOIN, 1)),
        ([DRAINING, DRAINING], 2, (Answer.BUSY, -1)),
        ([READY, CRASHED], 2, (Answer.AWAIT_END, 1)),
        ([READY, CRASHED], 3, (Answer.START, -1)),
        ([READY, Seen(State.LOADING, own=True)], 3, (Answer.JOIN, 1)),
        ([READY, Seen(State.READY, own=True)], 3, (Answer.JOIN, 1)),
        ([READY, Seen(State.DRAINING, own=True)], 3, (Answer.BUSY, 1)),
        ([READY, Seen(State.LOADING, leaving=True, own=True)], 3, (Answer.AWAIT_END, 1)),
    ],
)
def test_what_a_load_finds(instances: list[Seen], most: int, answer: tuple[Answer, int]) -> None:
    assert answer_load(instances, most) == answer
