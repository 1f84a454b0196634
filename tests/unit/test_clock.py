"""The steady clock: near the wall clock, and deaf to its being set."""

import time

import pytest

from chassis.clock import steady_ms


def test_it_counts_from_the_epoch() -> None:
    assert abs(steady_ms() - time.time_ns() // 1_000_000) < 5_000


def test_it_does_not_jump_with_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    before = steady_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert before <= steady_ms() < before + 5_000
