"""The life of a model: nothing but the table, and delays that grow within bounds."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hosting.core import (
    FIRST_DELAY_MS,
    MOST_DELAY_MS,
    STABLE_MS,
    TRANSITIONS,
    IllegalStep,
    Life,
    State,
    Step,
)

NOW = 1_800_000_000_000


@pytest.mark.parametrize(("state", "step"), list(product(State, Step)))
def test_a_step_is_in_the_table_or_refused(state: State, step: Step) -> None:
    life = Life(state)

    def go() -> None:
        if step is Step.FAIL:
            life.fail("word", "Words.", NOW)
        else:
            life.take(step, NOW)

    if (state, step) in TRANSITIONS:
        go()
        assert life.state is TRANSITIONS[state, step]
    else:
        before = (life.failures, life.retry_at_ms, life.reason)
        with pytest.raises(IllegalStep, match=f"{step.name} in {state.name}"):
            go()
        assert life.state is state
        assert (life.failures, life.retry_at_ms, life.reason) == before


def test_every_state_is_reached_and_left() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)
    assert {step for _, step in TRANSITIONS} == set(Step)


@given(st.lists(st.tuples(st.sampled_from(Step), st.integers(0, 2 * STABLE_MS)), max_size=60))
def test_any_history_keeps_the_promises(history: list[tuple[Step, int]]) -> None:
    life, now = Life(), NOW
    for step, passed_ms in history:
        now += passed_ms
        state, failures, ready_ms = life.state, life.failures, life.ready_since_ms
        try:
            if step is Step.FAIL:
                life.fail("word", "Words.", now)
            else:
                life.take(step, now)
        except IllegalStep:
            assert (state, step) not in TRANSITIONS
            continue
        assert life.state is TRANSITIONS[state, step]
        assert 0 <= life.cooling_ms(now) <= MOST_DELAY_MS
        if life.state is not State.FAILED:
            assert life.cooling_ms(now) == 0
        if step is Step.FAIL:
            assert (life.reason, life.message) == ("word", "Words.")
            served = state is not State.LOADING
            stable = served and now - ready_ms >= STABLE_MS
            assert life.failures == (1 if stable else failures + 1)
            free = served and (stable or failures == 0)
            assert (life.cooling_ms(now) == 0) == free
        if step is Step.READY:
            assert life.reason == life.message == ""


def _failed_load(life: Life) -> int:
    life.take(Step.LOAD, NOW)
    life.fail("word", "Words.", NOW)
    return life.cooling_ms(NOW)


def _crash(life: Life, served_ms: int) -> int:
    life.take(Step.LOAD, NOW)
    life.take(Step.READY, NOW)
    life.fail("word", "Words.", NOW + served_ms)
    return life.cooling_ms(NOW + served_ms)


def test_failed_loads_wait_longer_each_time_up_to_a_bound() -> None:
    life = Life()
    delays = [_failed_load(life) for _ in range(100)]
    assert delays[:4] == [FIRST_DELAY_MS, 2000, 4000, 8000]
    assert all(a <= b for a, b in pairwise(delays))
    assert delays[-1] == MOST_DELAY_MS


def test_the_first_crash_is_free_and_the_next_are_not() -> None:
    life = Life()
    assert [_crash(life, 10) for _ in range(4)] == [0, 1000, 2000, 4000]


def test_an_engine_that_served_long_is_forgiven() -> None:
    life = Life()
    for _ in range(5):
        _failed_load(life)
    assert _crash(life, STABLE_MS - 1) > 0
    assert _crash(life, STABLE_MS) == 0
    assert _crash(life, 10) == FIRST_DELAY_MS


def test_cooling_runs_out_and_ends_with_an_unload() -> None:
    life = Life()
    assert _failed_load(life) == 1000
    assert life.cooling_ms(NOW + 400) == 600
    assert life.cooling_ms(NOW + 1000) == 0
    life.take(Step.STOPPED, NOW)
    assert life.cooling_ms(NOW) == 0
