"""The ring of failures: how many, whose, which, and what a half-written one costs."""

import mmap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.signals import failures as ring
from edge.signals.failures import SLOTS, Failure, Failures


def failure(at: int, message: str = "The engine died.", request_id: str = "") -> Failure:
    name = request_id or f"r{at}"
    return Failure(
        f"2026-01-01T00:00:{at:06}Z", name, "POST", "/v1/x", 503, "engine_crashed", message
    )


def test_it_keeps_the_newest_and_no_more() -> None:
    kept = Failures()
    for at in range(100):
        kept.add(failure(at))
    assert [one.request_id for one in kept.latest()] == [f"r{at}" for at in range(99, 67, -1)]
    assert [one.request_id for one in kept.latest(2)] == ["r99", "r98"]
    assert len(kept.latest()) == SLOTS == 32


def test_workers_see_each_others_and_a_new_one_goes_on(tmp_path: Path) -> None:
    one, two = Failures(tmp_path, "0"), Failures(tmp_path, "1")
    for at in range(60):
        (one if at % 2 else two).add(failure(at))
    assert one.latest() == two.latest()
    assert [each.request_id for each in one.latest(3)] == ["r59", "r58", "r57"]
    del one
    again = Failures(tmp_path, "0")
    again.add(failure(60))
    assert [each.request_id for each in two.latest(3)] == ["r60", "r59", "r58"]
    assert {path.stat().st_size for path in tmp_path.iterdir()} == {ring._RING_BYTES}


def test_a_slot_that_is_being_written_is_passed_over(tmp_path: Path) -> None:
    kept = Failures(tmp_path, "0")
    for at in range(3):
        kept.add(failure(at))
    (path,) = tmp_path.iterdir()
    with path.open("r+b") as file:
        file.seek(8 + ring._SLOT_BYTES + 40)
        file.write(b"\0" * 40)
    assert [one.request_id for one in kept.latest()] == ["r2", "r0"]


@pytest.mark.parametrize("message", ["x" * 5000, "\0" * 5000, "\U0001f600" * 5000, '"' * 5000])
def test_a_message_of_any_length_finds_room(message: str) -> None:
    kept = Failures()
    kept.add(failure(1, message, request_id="i" * 128))
    (one,) = kept.latest()
    assert (one.status, one.reason) == (503, "engine_crashed")
    assert message.startswith(one.message)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.integers(0, 10**6), st.text(max_size=400)), max_size=80))
def test_as_a_list_would_have_it(told: list[tuple[int, str]]) -> None:
    kept, all_of_them = Failures(), []
    for at, message in sorted(told):
        kept.add(failure(at, message))
        all_of_them.append(at)
    newest = [f"r{at}" for at in all_of_them[-SLOTS:]]
    got = [one.request_id for one in kept.latest()]
    assert sorted(got) == sorted(newest)


def test_empty_memory_holds_nothing() -> None:
    assert ring.Ring(mmap.mmap(-1, ring._RING_BYTES)).all() == []
