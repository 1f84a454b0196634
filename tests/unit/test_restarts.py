"""When a service that ended is started again."""

import pytest

from chassis.restarts import BACKOFF, STEADY_S, GiveUp, Restart, decide, ending


def test_delays_grow_up_to_the_bound() -> None:
    delays, failures = [], 0
    for _ in range(8):
        decision = decide(-9, 0.1, failures)
        assert isinstance(decision, Restart)
        failures = decision.failures
        delays.append(decision.delay_s)
    assert delays == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_a_steady_service_is_forgiven() -> None:
    assert decide(1, STEADY_S, 7) == Restart(BACKOFF.first_s, 1)
    assert decide(1, STEADY_S - 0.1, 7) == Restart(BACKOFF.most_s, 8)


def test_an_unasked_exit_with_zero_is_a_failure_too() -> None:
    assert decide(0, 1.0, 0) == Restart(BACKOFF.first_s, 1)


def test_a_refused_configuration_gives_up() -> None:
    assert decide(2, 100.0, 0) == GiveUp()


def test_a_configuration_that_was_broken_since_may_be_mended() -> None:
    assert decide(2, 0.1, 1, again=True) == Restart(pytest.approx(0.4), 2)


def test_endings_in_words() -> None:
    assert ending(-9) == "was killed by signal 9"
    assert ending(3) == "ended with 3"
