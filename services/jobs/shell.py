"""The one task that owns the book: it takes events in order, writes, then tells and begins.

Nothing of a job is shown before it is on the disk. What cannot be written is not shown either: a
new job is refused; any other change is tried again for a while, and then the service ends, because
only one that starts anew from the disk can go on without lying.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from chassis import log
from chassis.errors import Fault, Reason
from services.jobs import metrics
from services.jobs.board import Board
from services.jobs.core.book import Book
from services.jobs.core.values import (
    Accepted,
    Begin,
    Draft,
    Effect,
    Job,
    Put,
    Refused,
    Remove,
    Stop,
    Tell,
)
from services.jobs.disk import Disk
from services.jobs.steps import Ended, Performer, Steps

T = TypeVar("T")

_MAX_WAITING = 10_000
_MAX_WRITING = 4
"""Submissions whose pictures are written side by side."""
_MAX_COMING_BYTES = 512 << 20
"""Of submissions that are not accepted yet: they count nowhere else."""
_CLOSE_S = 5.0
_NEVER_S = 3600.0


class Shell:
    """Owns the book. `start` it, call it from anywhere on the loop, `close` it."""

    def __init__(
        self, book: Book, disk: Disk, performer: Performer, clock: Callable[[], int]
    ) -> None:
        self._book, self._disk, self._now = book, disk, clock
        self.board = Board()
        """Every job as it may be shown."""
        self.broken = asyncio.Event()
        """Set when it cannot go on; the service then ends."""
        self._events: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        """Bounded by those who put into it: calls are counted, and few steps run."""
        self._calls = 0
        self._steps = Steps(performer, disk.spec, self._over, self._heard)
        self._coming_bytes = 0
        self._writing = asyncio.Semaphore(_MAX_WRITING)
        self._submissions: set[asyncio.Task[Accepted]] = set()
        self._owner: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Take up the jobs of the store and begin to work; how many have not ended."""
        jobs = await self._disk.load()
        for job in jobs:
            self.board.show(job)
        await self._perform(self._book.resume(jobs, self._now()))
        self._owner = asyncio.create_task(self._run(), name="jobs-owner")
        return sum(not job.ended for job in jobs)

    async def close(self) -> None:
        """Leave what runs to the next start, and let go of the store."""
        owner = [] if self._owner is None else [self._owner]
        tasks = [*self._steps.leave(), *self._submissions, *owner]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)
        await self._disk.close()

    # -- calls -----------------------------------------------------------------------------------

    async def submit(self, draft: Draft, inputs: Mapping[str, bytes], spec: bytes) -> Accepted:
        """Accept a job; it is on the disk when this answers.

        Who leaves meanwhile may find it in the list. Faults: idempotency_key_reused, queue_full,
        storage_full, service_unavailable, saturated.
        """
        size = sum(map(len, inputs.values()))
        crowded = len(self._submissions) >= _MAX_WAITING
        if crowded or (self._coming_bytes and self._coming_bytes + size > _MAX_COMING_BYTES):
            raise _saturated("Too many jobs are being submitted at once")
        self._coming_bytes += size
        task = asyncio.create_task(self._submission(draft, inputs, spec))
        self._submissions.add(task)

        def over(task: asyncio.Task[Accepted]) -> None:
            self._submissions.discard(task)
            self._coming_bytes -= size
            if not task.cancelled():
                task.exception()  # taken here for a caller that has left

        task.add_done_callback(over)
        return await asyncio.shield(task)

    async def look(self, draft: Draft) -> Accepted | None:
        """The job there is under a draft's idempotency key; None: submit it. Faults as `submit`."""

        async def work() -> Accepted | Refused | None:
            return self._book.look(draft)

        said = await self._turn(work)
        return None if said is None else _accepted(said)

    async def cancel(self, owner: str, job_id: str) -> Job:
        """Ask a job to end. Faults: job_not_found."""
        self.board.get(owner, job_id)

        async def work() -> None:
            if job_id in self._book.jobs:
                await self._perform(self._book.cancel(job_id, self._now()))

        await self._turn(work)
        return self.board.get(owner, job_id)

    async def spec(self, job_id: str) -> bytes | None:
        """What a job was asked for; None: it is gone."""
        return await self._disk.spec(job_id)

    def pieces(
        self, job_id: str, name: str, offset_bytes: int
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """A file of a job in pieces, each with its place. Raises OSError."""
        return self._disk.pieces(job_id, name, offset_bytes)

    async def _submission(self, draft: Draft, inputs: Mapping[str, bytes], spec: bytes) -> Accepted:
        async with self._writing:
            whole = replace(draft, inputs=await self._disk.keep(draft.job_id, inputs))
            return _accepted(await self._turn(lambda: self._accept(whole, spec)))

    # -- the owner's turns -----------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                await self._one()
        except Exception as error:
            # What was decided is not on the disk, or a rule of the book was broken.
            log.get().error("jobs cannot go on", exc_info=error)
            self.broken.set()

    async def _one(self) -> None:
        """The next event, or the book's next appointment."""
        work: Callable[[], Awaitable[None]] | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._until_next_s()):
                work = await self._events.get()
        if work is not None:
            await work()
        await self._perform(self._book.tick(self._now()))

    def _until_next_s(self) -> float:
        at_ms = self._book.next_at_ms()
        return _NEVER_S if at_ms is None else max(0.0, (at_ms - self._now()) / 1000)

    async def _turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` answers or raises when it is its turn; who leaves does not stop it."""
        if self._calls >= _MAX_WAITING:
            raise _saturated(f"{_MAX_WAITING} calls already wait for the job service")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            self._calls -= 1
            try:
                result = await work()
            except Fault as fault:
                if not answer.done():
                    answer.set_exception(fault)
            else:
                if not answer.done():
                    answer.set_result(result)

        self._calls += 1
        self._events.put_nowait(run)
        return await answer

    async def _accept(self, draft: Draft, spec: bytes) -> Accepted | Refused:
        said, effects = self._book.submit(draft, self._now())
        if isinstance(said, Refused) or said.existing:
            await self._disk.discard(draft.job_id)
            return said
        try:
            await self._disk.write(effects, spec)
        except sqlite3.Error as error:
            log.get().error("job cannot be written", error=str(error))
            self._book.forget(draft.job_id)
            await self._disk.discard(draft.job_id)
            raise Fault(
                Reason.SERVICE_UNAVAILABLE,
                f"The job service cannot write its database ({error}); see to its disk.",
                retry_after_s=10.0,
            ) from error
        await self._show(effects)
        return said

    async def _perform(self, effects: list[Effect]) -> None:
        await self._disk.write_surely(effects)
        await self._show(effects)

    async def _show(self, effects: list[Effect]) -> None:
        """Do what follows from what is written now."""
        for effect in effects:
            match effect:
                case Put(job=job) | Tell(job=job):
                    metrics.count(self.board.show(job), job)
                case Remove(job_id=job_id):
                    self.board.remove(job_id)
        await self._disk.clear(effects)
        for effect in effects:
            match effect:
                case Begin(job=job, position=position):
                    self._steps.begin(job, position)
                case Stop(job_id=job_id):
                    self._steps.stop(job_id)

    # -- steps -----------------------------------------------------------------------------------

    def _over(self, job_id: str, task: Ended) -> None:
        self._events.put_nowait(lambda: self._perform(self._outcome(job_id, task)))

    def _heard(self) -> None:
        self._events.put_nowait(self._take_reports)

    async def _take_reports(self) -> None:
        for job_id, said in self._steps.reports().items():
            told = self._book.progressed(
                job_id, said.progress, running=said.running, model=said.model
            )
            await self._show(told)

    def _outcome(self, job_id: str, task: Ended) -> list[Effect]:
        """What the end of a step means to the book."""
        now_ms = self._now()
        if task.cancelled():
            if self._book.jobs[job_id].cancel_requested:
                return self._book.stopped(job_id, now_ms)
            lost = Fault(Reason.SERVICE_UNAVAILABLE, "The call of this step was broken off.")
            return self._failed(job_id, lost, now_ms)
        error = task.exception()
        if error is None:
            return self._book.made(job_id, task.result(), now_ms)
        if not isinstance(error, Fault):
            log.get().error("bug", exc_info=error, job=job_id)
            said = "Something went wrong inside Cohabit; its log says what."
            error = Fault(Reason.INTERNAL, said)
        return self._failed(job_id, error, now_ms)

    def _failed(self, job_id: str, fault: Fault, now_ms: int) -> list[Effect]:
        log.get().info("step failed", job=job_id, reason=fault.reason.value)
        retry_ms = round((fault.retry_after_s or 0.0) * 1000)
        return self._book.failed(job_id, fault.reason.value, fault.message, retry_ms, now_ms)


def _accepted(said: Accepted | Refused) -> Accepted:
    if isinstance(said, Refused):
        raise Fault(Reason(said.reason), said.message, retry_after_s=said.retry_after_s)
    return said


def _saturated(what: str) -> Fault:
    return Fault(Reason.SATURATED, f"{what}; try again shortly.", retry_after_s=1.0)
