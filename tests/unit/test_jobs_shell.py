"""The shell of jobs where its disk fails it, and the board where nothing happens."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from services.jobs.board import Board, Pace
from services.jobs.core.book import Book
from services.jobs.core.values import Job, JobState, Outcome, Put, Remove
from services.jobs.disk import Disk
from services.jobs.files import Files
from services.jobs.shell import Shell
from services.jobs.store import Store
from tests.jobs_world import LIMITS, PATIENCE, World, draft, outcome

DEADLINE_S = 10.0


class Sickly(Store):
    """A store that refuses its next writes, as a full disk does."""

    refusals = 0

    def write(self, effects: Sequence[Put | Remove], spec: bytes = b"") -> None:
        if self.refusals:
            self.refusals -= 1
            raise sqlite3.OperationalError("database or disk is full")
        super().write(effects, spec)


class Hands:
    """Performs steps when it is told to."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.go = asyncio.Event()
        self.failures: list[BaseException] = []

    async def run(self, job: Job, position: int, spec: bytes, report: Any) -> tuple[Outcome, ...]:
        if self.failures:
            raise self.failures.pop()
        report(0.5, True, "m")
        await self.go.wait()
        made = outcome(job, position, 3)
        self.files.write(job.job_id, made.name, b"abc")
        return (made,)


class Place:
    def __init__(self, folder: Path) -> None:
        self.store, self.files = Sickly(folder), Files(folder / "files")
        self.hands = Hands(self.files)
        self.shell = Shell(
            Book(LIMITS, PATIENCE), Disk(self.store, self.files), self.hands, steady_ms
        )

    async def begun(self, job_id: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            async for job in self.shell.board.watch("o", job_id, 0):
                if job.state is JobState.RUNNING:
                    return

    async def ended(self, job_id: str) -> Job:
        async with asyncio.timeout(DEADLINE_S):
            return [job async for job in self.shell.board.watch("o", job_id, 0)][-1]


async def test_a_job_that_cannot_be_written_is_refused_and_never_was(tmp_path: Path) -> None:
    place = Place(tmp_path)
    await place.shell.start()
    place.store.refusals = 1
    with pytest.raises(Fault) as caught:
        await place.shell.submit(draft("a", key="k"), {"image": b"x"}, b"")
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    assert not list((tmp_path / "files").iterdir())
    with pytest.raises(Fault):
        place.shell.board.get("o", "a")
    place.hands.go.set()
    again = await place.shell.submit(draft("b", key="k"), {"image": b"x"}, b"")
    assert not again.existing
    assert (await place.ended("b")).state is JobState.SUCCEEDED
    await place.shell.close()


async def test_a_change_that_cannot_be_written_is_not_shown_until_it_is(tmp_path: Path) -> None:
    place = Place(tmp_path)
    await place.shell.start()
    await place.shell.submit(draft("a"), {}, b"")
    place.store.refusals = 2
    place.hands.go.set()
    assert (await place.ended("a")).state is JobState.SUCCEEDED
    assert place.store.refusals == 0
    await place.shell.close()
    store = Store(tmp_path)
    assert [job.state for job in store.jobs()] == [JobState.SUCCEEDED]
    store.close()


async def test_a_disk_that_stays_broken_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.jobs.disk._TRIES", 2)
    place = Place(tmp_path)
    await place.shell.start()
    await place.shell.submit(draft("a"), {}, b"")
    await place.begun("a")
    place.store.refusals = 1000
    place.hands.go.set()
    async with asyncio.timeout(DEADLINE_S):
        await place.shell.broken.wait()
    assert place.shell.board.get("o", "a").state is JobState.RUNNING
    await place.shell.close()


async def test_a_bug_in_a_step_fails_its_job_and_tells_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.hands.failures = [ZeroDivisionError("secret")]
    await place.shell.start()
    await place.shell.submit(draft("a"), {}, b"")
    job = await place.ended("a")
    assert job.failure is not None
    assert job.failure.reason == "internal"
    assert "secret" not in job.failure.message
    await place.shell.close()


async def test_a_step_that_was_broken_off_unasked_is_tried_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.hands.failures = [asyncio.CancelledError()]
    place.hands.go.set()
    await place.shell.start()
    await place.shell.submit(draft("a"), {}, b"")
    job = await place.ended("a")
    assert (job.state, job.steps[0].attempts) == (JobState.SUCCEEDED, 2)
    await place.shell.close()


def shown(board: Board) -> Job:
    world = World()
    world.submit(draft("a"))
    board.show(world.rows["a"])
    return world.rows["a"]


async def test_a_watch_says_something_even_when_nothing_happens() -> None:
    board = Board(Pace(least_s=0.0, most_s=0.01))
    job = shown(board)
    watch = board.watch("o", "a", job.revision + 5)
    async with asyncio.timeout(DEADLINE_S):
        assert [await anext(watch) for _ in range(3)] == [job] * 3
    await watch.aclose()


async def test_the_end_is_told_even_to_those_who_saw_it() -> None:
    board = Board(Pace(least_s=0.0, most_s=60.0))
    world = World()
    world.submit(draft("a"))
    world.made("a")
    board.show(world.rows["a"])
    async with asyncio.timeout(DEADLINE_S):
        watch = board.watch("o", "a", world.rows["a"].revision + 9)
        assert [job async for job in watch] == [world.rows["a"]]


async def test_changes_that_come_together_are_told_together() -> None:
    board = Board(Pace(least_s=0.02, most_s=60.0))
    world = World()
    world.submit(draft("a", "three"))
    board.show(world.rows["a"])
    watch = board.watch("o", "a", 0)
    first = await anext(watch)
    for _ in range(3):
        world.progressed("a", 0.9)
        board.show(world.book.jobs["a"])
        world.made("a")
        board.show(world.rows["a"])
    rest = [job async for job in watch]
    assert first.state is JobState.RUNNING
    assert rest == [world.rows["a"]]


async def test_a_watch_ends_when_its_job_goes_or_the_service_leaves() -> None:
    acts: tuple[tuple[Callable[[Board], None], Reason], ...] = (
        (lambda board: board.remove("a"), Reason.JOB_NOT_FOUND),
        (lambda board: board.close(), Reason.SERVICE_UNAVAILABLE),
    )
    for act, reason in acts:
        board = Board(Pace(least_s=0.0, most_s=60.0))
        shown(board)
        watch = board.watch("o", "a", 0)
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        act(board)
        with pytest.raises(Fault) as caught:
            await asyncio.wait_for(waiting, DEADLINE_S)
        assert caught.value.reason is reason


async def test_who_leaves_while_submitting_finds_the_job_in_the_list(tmp_path: Path) -> None:
    place = Place(tmp_path)
    await place.shell.start()
    leaving = asyncio.ensure_future(place.shell.submit(draft("a"), {"image": b"x"}, b""))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await asyncio.gather(*place.shell._submissions)
    place.hands.go.set()
    assert (await place.ended("a")).state is JobState.SUCCEEDED
    await place.shell.close()


async def test_submissions_that_are_not_accepted_yet_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.jobs.shell._MAX_COMING_BYTES", 10)
    place = Place(tmp_path)
    await place.shell.start()
    first = asyncio.ensure_future(place.shell.submit(draft("a"), {"image": bytes(8)}, b""))
    await asyncio.sleep(0)
    with pytest.raises(Fault) as caught:
        await place.shell.submit(draft("b"), {"image": bytes(8)}, b"")
    assert caught.value.reason is Reason.SATURATED
    await first
    await place.shell.submit(draft("c"), {"image": bytes(8)}, b"")
    await place.shell.close()


async def test_calls_that_wait_for_their_turn_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.jobs.shell._MAX_WAITING", 1)
    place = Place(tmp_path)
    await place.shell.start()
    first = asyncio.ensure_future(place.shell.look(draft("a")))
    await asyncio.sleep(0)
    with pytest.raises(Fault) as caught:
        await place.shell.look(draft("b"))
    assert caught.value.reason is Reason.SATURATED
    assert await first is None
    assert await place.shell.look(draft("c")) is None
    await place.shell.close()


async def test_watches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.jobs.board._MAX_WATCHERS", 1)
    board = Board()
    shown(board)
    first = board.watch("o", "a", 0)
    await anext(first)
    with pytest.raises(Fault) as caught:
        await anext(board.watch("o", "a", 0))
    assert caught.value.reason is Reason.SATURATED
    await first.aclose()
    await anext(board.watch("o", "a", 0))
