"""The rules of the book of jobs, one by one; random histories are in tests/deep."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Reason
from cohabit.jobs.v1 import jobs_pb2 as pb
from services.jobs.core import life
from services.jobs.core.plan import progress_of, steps_of
from services.jobs.core.retries import AWAY, BREAKDOWNS, Patience
from services.jobs.core.values import (
    Accepted,
    Job,
    JobKind,
    JobState,
    Refused,
    Role,
    StepKind,
    StepState,
)
from tests.jobs_world import KEEP_MS, LIMITS, PATIENCE, WORKS, World, draft


def accepted(world: World, name: str, work: str = "picture", **more: object) -> Job:
    said = world.submit(draft(name, work, **more))  # type: ignore[arg-type]
    assert isinstance(said, Accepted), said
    return said.job


def refused(world: World, name: str, work: str = "picture", **more: object) -> Refused:
    said = world.submit(draft(name, work, **more))  # type: ignore[arg-type]
    assert isinstance(said, Refused), said
    return said


def run_out(world: World) -> None:
    for _ in range(50):
        for job_id in list(world.calls):
            world.made(job_id)
    world.check()


def state(world: World, name: str) -> JobState:
    return world.rows[name].state


def test_the_numbers_are_those_of_the_wire() -> None:
    for ours, theirs, prefix in (
        (JobKind, pb.JobKind, "JOB_KIND_"),
        (JobState, pb.JobState, "JOB_STATE_"),
        (StepKind, pb.StepKind, "STEP_KIND_"),
        (StepState, pb.StepState, "STEP_STATE_"),
        (Role, pb.ResultRole, "RESULT_ROLE_"),
    ):
        for member in ours:
            assert int(theirs.Value(f"{prefix}{member.name}")) == int(member)


@pytest.mark.parametrize(
    ("work", "kinds"),
    [
        ("picture", [StepKind.GENERATE]),
        ("three", [StepKind.GENERATE] * 3),
        ("foreground", [StepKind.GENERATE, StepKind.MATTE]),
        ("cutout", [StepKind.MATTE]),
        ("backdrop", [StepKind.MATTE, StepKind.GENERATE_BACKDROP, StepKind.COMPOSITE]),
    ],
)
def test_each_kind_has_its_steps(work: str, kinds: list[StepKind]) -> None:
    assert [step.kind for step in steps_of(WORKS[work])] == kinds


def test_progress_goes_by_expected_time() -> None:
    world = World()
    accepted(world, "a", "foreground")
    world.made("a")
    assert progress_of(world.rows["a"]) == pytest.approx(20 / 22)
    world.progressed("a", 0.5)
    assert progress_of(world.book.jobs["a"]) == pytest.approx(21 / 22)
    world.progressed("a", 0.25)
    assert progress_of(world.book.jobs["a"]) == pytest.approx(21 / 22)


def test_a_job_runs_its_steps_in_order_and_ends() -> None:
    world = World()
    accepted(world, "a", "backdrop", input_bytes=10)
    for position in range(3):
        assert world.calls == {"a": position}
        world.made("a", 20)
    job = world.rows["a"]
    assert job.state is JobState.SUCCEEDED
    assert [made.result_id for made in job.results] == ["image-0"]
    assert world.files["a"] == {"2-1": 20}, "inputs and pictures between steps are gone"
    assert job.expires_ms == job.ended_ms + KEEP_MS


def test_the_oldest_jobs_run_first_and_only_so_many() -> None:
    world = World()
    for name in "abcd":
        accepted(world, name, "three")
    assert set(world.calls) == {"a", "b"}
    for _ in range(3):
        world.made("b")
    assert set(world.calls) == {"a", "c"}
    assert state(world, "d") is JobState.QUEUED


def test_a_step_that_waits_to_be_tried_again_leaves_its_place() -> None:
    world = World()
    for name in "abc":
        accepted(world, name)
    world.failed("a", "service_unavailable")
    assert set(world.calls) == {"b", "c"}
    job = world.rows["a"]
    assert job.state is JobState.RUNNING
    step = job.steps[0]
    assert step.state is StepState.WAITING
    assert step.failure is not None
    assert step.failure.retry_at_ms == world.now_ms + PATIENCE.first_ms
    world.made("b")
    world.tick(PATIENCE.first_ms - 1)
    assert "a" not in world.calls
    world.tick(1)
    assert "a" in world.calls
    assert world.book.jobs["a"].steps[0].attempts == 2


def test_breakdowns_are_bounded_by_attempts() -> None:
    world = World()
    accepted(world, "a")
    for _ in range(PATIENCE.breakdowns - 1):
        world.failed("a", "engine_crashed")
        assert state(world, "a") is JobState.RUNNING
        world.tick(60_000)
    world.failed("a", "engine_crashed")
    job = world.rows["a"]
    assert job.state is JobState.FAILED
    assert job.failure is not None
    assert (job.failure.reason, job.failure.message) == ("engine_crashed", "It broke.")
    assert job.steps[0].state is StepState.FAILED


def test_absence_is_bounded_by_age_alone() -> None:
    world = World()
    accepted(world, "a")
    began_ms, tries = world.now_ms, 0
    while state(world, "a") is JobState.RUNNING:
        world.failed("a", "service_unavailable")
        tries += 1
        if not world.rows["a"].ended:
            world.tick(max(0, (world.book.next_at_ms() or 0) - world.now_ms))
    assert tries > 50
    assert world.now_ms - began_ms >= PATIENCE.age_ms


def test_a_failure_that_does_not_pass_fails_the_job_at_once() -> None:
    world = World()
    accepted(world, "a", "backdrop", input_bytes=10)
    world.made("a")
    world.failed("a", "never_fits")
    job = world.rows["a"]
    assert job.state is JobState.FAILED
    assert [step.state for step in job.steps] == [
        StepState.DONE,
        StepState.FAILED,
        StepState.SKIPPED,
    ]
    assert job.results == ()
    assert not world.files["a"]


@given(st.integers(1, 200), st.integers(0, 10**9))
def test_pauses_grow_up_to_a_bound_and_respect_what_was_asked_for(misses: int, asked: int) -> None:
    patience = Patience(breakdowns=3, age_ms=3_600_000, first_ms=1000, most_ms=60_000)
    pause = patience.pause_ms(misses, asked)
    assert pause >= min(asked, patience.age_ms)
    assert pause <= max(60_000, min(asked, patience.age_ms))
    assert patience.pause_ms(misses + 1, 0) >= patience.pause_ms(misses, 0)


def test_no_failure_is_of_two_kinds_and_all_are_reasons() -> None:
    assert not AWAY & BREAKDOWNS
    assert {Reason(reason) for reason in AWAY | BREAKDOWNS}


def test_a_disk_that_is_full_for_a_while_is_no_end() -> None:
    world = World()
    accepted(world, "a")
    world.failed("a", "storage_full")
    assert not world.rows["a"].ended


def test_a_queued_job_is_cancelled_at_once() -> None:
    world = World()
    for name in "abc":
        accepted(world, name)
    world.cancel("c")
    job = world.rows["c"]
    assert job.state is JobState.CANCELLED
    assert job.steps[0].state is StepState.SKIPPED


def test_a_running_job_is_cancelled_when_its_call_has_ended() -> None:
    world = World()
    accepted(world, "a")
    world.cancel("a")
    assert world.stopping == {"a"}
    assert world.rows["a"].cancel_requested
    assert state(world, "a") is JobState.RUNNING
    world.stopped("a")
    assert state(world, "a") is JobState.CANCELLED
    assert not world.rows["a"].cancel_requested


def test_what_comes_after_a_cancel_is_dropped() -> None:
    world = World()
    accepted(world, "a")
    world.cancel("a")
    world.made("a")
    assert state(world, "a") is JobState.CANCELLED
    assert not world.files["a"]
    world.check()


def test_a_cancel_survives_a_restart() -> None:
    world = World()
    accepted(world, "a")
    world.cancel("a")
    world.restart()
    assert state(world, "a") is JobState.CANCELLED
    assert not world.calls


def test_a_job_that_waits_for_its_next_try_is_cancelled_at_once() -> None:
    world = World()
    accepted(world, "a")
    world.failed("a", "queue_full")
    world.cancel("a")
    assert state(world, "a") is JobState.CANCELLED


def test_cancelling_what_has_ended_changes_nothing() -> None:
    world = World()
    accepted(world, "a")
    world.made("a")
    before = world.rows["a"]
    world.cancel("a")
    assert world.rows["a"] == before


def test_a_restart_runs_the_step_again_and_keeps_those_that_are_done() -> None:
    world = World()
    accepted(world, "a", "three")
    world.made("a")
    world.progressed("a", 0.5)
    seen = world.book.jobs["a"].revision
    world.restart()
    assert world.calls == {"a": 1}
    job = world.rows["a"]
    assert [step.attempts for step in job.steps] == [1, 2, 0]
    assert job.revision > seen
    run_out(world)
    assert len(world.rows["a"].results) == 3


def test_the_same_key_and_request_answer_the_job_that_there_is() -> None:
    world = World()
    first = accepted(world, "a", key="k")
    said = world.submit(draft("b", key="k"))
    assert isinstance(said, Accepted)
    assert (said.job.job_id, said.existing) == (first.job_id, True)
    assert refused(world, "c", "cutout", key="k").reason == "idempotency_key_reused"
    world.restart()
    said = world.submit(draft("d", key="k"))
    assert isinstance(said, Accepted)
    assert said.job.job_id == "a"
    accepted(world, "e")
    accepted(world, "f")


def test_another_owners_key_is_another_key() -> None:
    world = World()
    accepted(world, "a", key="k")
    said = world.submit(replace(draft("b", key="k"), owner="else"))
    assert isinstance(said, Accepted)
    assert not said.existing


def test_open_jobs_are_bounded() -> None:
    world = World()
    for number in range(LIMITS.open_jobs):
        accepted(world, f"j{number}")
    said = refused(world, "more")
    assert said.reason == "queue_full"
    assert said.retry_after_s
    world.made("j0")
    accepted(world, "more")


def test_for_one_job_more_the_oldest_that_ended_goes() -> None:
    world = World()
    for number in range(LIMITS.jobs + 1):
        accepted(world, f"j{number}")
        run_out(world)
    assert "j0" not in world.rows
    assert len(world.rows) == LIMITS.jobs


def test_time_takes_jobs_with_their_files() -> None:
    world = World()
    accepted(world, "a")
    world.made("a")
    assert world.book.next_at_ms() == world.now_ms + KEEP_MS
    world.tick(KEEP_MS - 1)
    assert "a" in world.rows
    world.tick(1)
    assert not world.rows
    assert not world.files


def test_space_takes_the_files_of_the_oldest_results_and_leaves_the_record() -> None:
    world = World()
    for name in "abc":
        accepted(world, name)
        world.made(name, 400)
        world.check()
    assert world.rows["a"].expired
    assert not world.rows["b"].expired
    assert world.rows["a"].results, "the record is what is left"
    world.restart()
    assert world.book.held_bytes == 800


def test_what_has_not_ended_never_makes_room() -> None:
    world = World()
    accepted(world, "a", input_bytes=900)
    said = refused(world, "b", input_bytes=200)
    assert said.reason == "storage_full"
    accepted(world, "c")
    world.made("c", 200)
    job = world.rows["c"]
    assert job.failure is not None
    assert job.failure.reason == "storage_full"
    assert not world.files["c"]
    world.check()


def test_nothing_is_taken_for_what_would_not_fit_anyway() -> None:
    world = World()
    accepted(world, "a")
    world.made("a", 400)
    refused(world, "b", input_bytes=1001)
    assert not world.rows["a"].expired


def test_after_a_restart_the_first_to_end_still_goes_first() -> None:
    world = World()
    accepted(world, "a")
    accepted(world, "b")
    world.made("b", 400)
    world.tick(1)
    world.made("a", 400)
    world.restart()
    accepted(world, "c")
    world.made("c", 400)
    assert world.rows["b"].expired
    assert not world.rows["a"].expired


def test_the_tables_know_every_state_and_final_ones_are_final() -> None:
    assert set(life.JOB_MOVES) == set(JobState)
    assert set(life.STEP_MOVES) == set(StepState)
    for job_state, moves in life.JOB_MOVES.items():
        assert bool(moves) == (job_state < JobState.SUCCEEDED)


def test_an_impossible_move_is_refused() -> None:
    world = World()
    accepted(world, "a")
    world.made("a")
    with pytest.raises(life.ImpossibleMove):
        life.ended(world.rows["a"], JobState.FAILED, 0)
