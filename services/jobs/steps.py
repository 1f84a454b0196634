"""The steps that run: a task each, begun and stopped for the shell, and what they say meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from chassis import log
from services.jobs.core.values import Job, Outcome

Ended = asyncio.Task[tuple[Outcome, ...]]
"""A step that is over: its outcomes, what it failed with, or that it was stopped."""

Report = Callable[[float, bool, str], None]
"""As `clients.Report`."""


class Performer(Protocol):
    """Runs steps."""

    async def run(
        self, job: Job, position: int, spec: bytes, report: Report
    ) -> tuple[Outcome, ...]:
        """The outcomes of a step, as files in the job's folder. Raises Fault."""


@dataclass(frozen=True, slots=True)
class Said:
    """How far a step is."""

    progress: float
    """0 to 1."""
    running: bool
    """Else it waits for its turn."""
    model: str
    """Who serves it; empty: not known yet."""


class Steps:
    """At most one step of a job runs; how many in all is the book's to decide.

    `over` is told the end of each, `heard` that there are reports to take.
    """

    def __init__(
        self,
        performer: Performer,
        spec_of: Callable[[str], Awaitable[bytes | None]],
        over: Callable[[str, Ended], None],
        heard: Callable[[], None],
    ) -> None:
        self._performer, self._spec_of = performer, spec_of
        self._over, self._heard = over, heard
        self._tasks: dict[str, Ended] = {}
        self._reports: dict[str, Said] = {}
        """The newest of each step."""
        self._leaving = False

    def begin(self, job: Job, position: int) -> None:
        """Run a step."""
        task = asyncio.create_task(self._run(job, position))
        self._tasks[job.job_id] = task

        def over(task: Ended) -> None:
            del self._tasks[job.job_id]
            if not self._leaving:
                self._over(job.job_id, task)

        task.add_done_callback(over)

    def stop(self, job_id: str) -> None:
        """Have the step of a job end; if it has ended by itself, that stands."""
        if task := self._tasks.get(job_id):
            task.cancel()

    def reports(self) -> dict[str, Said]:
        """What was said since they were taken last, by job."""
        taken, self._reports = self._reports, {}
        return taken

    def leave(self) -> Iterable[Ended]:
        """All that run, for the caller to end; nothing is told any more."""
        self._leaving = True
        return list(self._tasks.values())

    async def _run(self, job: Job, position: int) -> tuple[Outcome, ...]:
        log.request_id.set(job.request_id)
        spec = await self._spec_of(job.job_id)

        def report(progress: float, running: bool, model: str) -> None:
            if not self._reports:
                self._heard()
            before = self._reports.get(job.job_id)
            known = model or (before.model if before is not None else "")
            self._reports[job.job_id] = Said(progress, running, known)

        return await self._performer.run(job, position, spec or b"", report)
