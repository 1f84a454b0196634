"""Jobs as they may be shown: each after its last change was written, and who waits for the next."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

from chassis.errors import Fault, Reason
from services.jobs.core.values import Job, JobState

_MAX_WATCHERS = 10_000


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a watched job is told."""

    least_s: float = 0.1
    """Between two changes."""
    most_s: float = 10.0
    """Without any."""


class Board:
    """Written by the shell alone, read by anybody on its loop."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._jobs: dict[str, Job] = {}
        """Oldest first."""
        self._queued: dict[str, None] = {}
        self._bells: dict[str, set[asyncio.Event]] = {}
        self._watchers = 0
        self._closed = False

    def show(self, job: Job) -> Job | None:
        """A job as it is now; how it was shown before."""
        before = self._jobs.get(job.job_id)
        self._jobs[job.job_id] = job
        if job.state is JobState.QUEUED:
            self._queued[job.job_id] = None
        else:
            self._queued.pop(job.job_id, None)
        self._ring(job.job_id)
        return before

    def remove(self, job_id: str) -> None:
        """A job is gone."""
        self._jobs.pop(job_id, None)
        self._queued.pop(job_id, None)
        self._ring(job_id)

    def close(self) -> None:
        """Streams that would go on end now."""
        self._closed = True
        for job_id in list(self._bells):
            self._ring(job_id)

    def get(self, owner: str, job_id: str) -> Job:
        """A job of this owner. Faults: job_not_found."""
        job = self._jobs.get(job_id)
        if job is None or job.owner != owner:
            raise Fault(
                Reason.JOB_NOT_FOUND,
                f"There is no job '{job_id[:64]}': it was never submitted, belongs to another "
                "owner, or its retention is over.",
                metadata={"param": "job_id"},
            )
        return job

    def newest_first(self) -> Iterable[Job]:
        """Every job of every owner."""
        return reversed(self._jobs.values())

    def position(self, job: Job) -> int:
        """How many jobs stand before it, while it is queued."""
        return self.positions([job]).get(job.job_id, 0)

    def positions(self, jobs: Iterable[Job]) -> dict[str, int]:
        """By id, of those of the jobs that are queued: how many jobs stand before each."""
        wanted = {job.job_id for job in jobs if job.job_id in self._queued}
        if not wanted:
            return {}
        return {key: before for before, key in enumerate(self._queued) if key in wanted}

    async def watch(
        self, owner: str, job_id: str, after_revision: int
    ) -> AsyncGenerator[Job, None]:
        """The job at once or when it has changed, then after changes, to its end.

        Faults: job_not_found, saturated, service_unavailable when the service is leaving.
        """
        self.get(owner, job_id)
        bell = self._hang(job_id)
        loop, seen = asyncio.get_running_loop(), after_revision
        silent_until = loop.time() + self._pace.most_s
        try:
            while True:
                job = self.get(owner, job_id)
                bell.clear()
                if job.revision > seen or job.ended or loop.time() >= silent_until:
                    yield job
                    if job.ended:
                        return
                    seen = job.revision
                    silent_until = loop.time() + self._pace.most_s
                    await self._rest()
                self._stay()
                await _rung(bell, silent_until)
        finally:
            self._take_down(job_id, bell)

    async def _rest(self) -> None:
        """Changes that come together are told together."""
        await asyncio.sleep(self._pace.least_s)

    def _stay(self) -> None:
        if self._closed:
            message = "The job service is leaving; watch the job again in a moment."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)

    def _hang(self, job_id: str) -> asyncio.Event:
        if self._watchers >= _MAX_WATCHERS:
            raise Fault(
                Reason.SATURATED,
                f"{_MAX_WATCHERS} callers watch jobs already; ask with GetJob instead.",
                retry_after_s=10.0,
            )
        bell = asyncio.Event()
        self._bells.setdefault(job_id, set()).add(bell)
        self._watchers += 1
        return bell

    def _take_down(self, job_id: str, bell: asyncio.Event) -> None:
        self._watchers -= 1
        bells = self._bells[job_id]
        bells.discard(bell)
        if not bells:
            del self._bells[job_id]

    def _ring(self, job_id: str) -> None:
        for bell in self._bells.get(job_id, ()):
            bell.set()


async def _rung(bell: asyncio.Event, by: float) -> None:
    try:
        async with asyncio.timeout_at(by):
            await bell.wait()
    except TimeoutError:
        return
