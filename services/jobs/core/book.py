"""The book of all jobs: what was accepted, what runs, what is kept. It owns its jobs.

An event's effects are to be performed in their order, each wholly before the next; a crash between
any two of them loses and doubles nothing, because whoever starts anew begins with what was written
(`resume`). The rules, by number:

1. A job is accepted by its first Put. The same owner, idempotency key and request: the job there
   is.
2. At most `limits.running` steps run, those of the oldest jobs first. A step that waits to be tried
   again leaves its place to the next job.
3. The outcomes of a step are recorded by the same Put that makes it DONE, and it is not run again.
   Files that no Put refers to are nobody's: `files_of` tells which they are.
4. A cancelled job ends at once, or when its running call has; whatever that call still brings is
   dropped.
5. What has ended goes when its time is over, files before records when space runs out, the oldest
   first. What has not ended never goes.
"""

from collections.abc import Iterable
from dataclasses import replace

from services.jobs.core import life
from services.jobs.core.retention import Shelf
from services.jobs.core.retries import BREAKDOWNS, Patience
from services.jobs.core.values import (
    Accepted,
    Begin,
    Draft,
    Drop,
    Effect,
    Failure,
    Job,
    JobState,
    Limits,
    Outcome,
    Put,
    Refused,
    Remove,
    Step,
    StepState,
    Stop,
    Tell,
)

RESTART_GAP = 1 << 24
"""Progress raises a revision without being written: a restart jumps over all that was told."""

_STORAGE_FULL = (
    "The storage of jobs is full: what this job needs does not fit beside the jobs that have not "
    "ended; wait for them, or raise jobs.max_mib."
)


class Book:
    """Every event of every job. Times are milliseconds since the Unix epoch."""

    def __init__(self, limits: Limits, patience: Patience) -> None:
        self._limits, self._patience = limits, patience
        self._jobs: dict[str, Job] = {}
        """In the order of their acceptance."""
        self._open: dict[str, None] = {}
        """Those that have not ended, in the same order."""
        self._shelf = Shelf()
        self._keys: dict[tuple[str, str], str] = {}
        self._running: set[str] = set()
        self._bytes = 0
        self._last_seq = 0

    # -- what there is ---------------------------------------------------------------------------

    @property
    def jobs(self) -> dict[str, Job]:
        """Every job, by id, oldest first."""
        return self._jobs

    @property
    def running(self) -> frozenset[str]:
        """Jobs of which a step was begun and has not ended."""
        return frozenset(self._running)

    @property
    def held_bytes(self) -> int:
        """Of all files that jobs refer to."""
        return self._bytes

    def next_at_ms(self) -> int | None:
        """When `tick` is due; None: not before the next event."""
        times = [] if (first := self._shelf.next_at_ms()) is None else [first]
        if len(self._running) < self._limits.running:
            waiting = (self._jobs[key] for key in self._open if key not in self._running)
            times += [_ready_at_ms(job) for job in waiting]
        return min(times, default=None)

    # -- events ----------------------------------------------------------------------------------

    def resume(self, stored: Iterable[Job], now_ms: int) -> list[Effect]:
        """Take up what was written before a restart."""
        jobs = sorted(stored, key=lambda job: job.seq)
        for job in jobs:
            self._enter(job)
        for job in sorted(jobs, key=lambda job: job.ended_ms):
            if job.ended:
                self._shelf.put(job)
        out: list[Effect] = []
        for job_id in list(self._open):
            job = _put_back(self._jobs[job_id])
            self._jobs[job_id] = job
            if job.cancel_requested:
                job = life.ended(job, JobState.CANCELLED, now_ms)
            self._put(job, out)
        return out + self.tick(now_ms)

    def look(self, draft: Draft) -> Accepted | Refused | None:
        """What is to be said to a draft before its inputs are kept; None: bring it."""
        known = self._keys.get((draft.owner, draft.idempotency_key))
        if draft.idempotency_key and known is not None:
            if self._jobs[known].request_hash == draft.request_hash:
                return Accepted(self._jobs[known], existing=True)
            return Refused(
                "idempotency_key_reused",
                f"The idempotency key {draft.idempotency_key!r} came before with another request; "
                "choose a new key for a new request.",
            )
        if len(self._open) >= min(self._limits.open_jobs, self._limits.jobs):
            return Refused(
                "queue_full",
                f"{len(self._open)} jobs wait or run already, the bound; try again later.",
                retry_after_s=10.0,
            )
        if not self._could_hold(_inputs_bytes(draft)):
            return Refused("storage_full", _STORAGE_FULL, retry_after_s=60.0)
        return None

    def submit(self, draft: Draft, now_ms: int) -> tuple[Accepted | Refused, list[Effect]]:
        """Accept a draft whose inputs lie in its folder (1); `tick` begins it."""
        if (said := self.look(draft)) is not None:
            return said, []
        out: list[Effect] = []
        while len(self._jobs) >= self._limits.jobs:
            self._remove(self._shelf.oldest(), out)
        self._make_room(_inputs_bytes(draft), out)
        self._last_seq += 1
        job = Job(
            job_id=draft.job_id,
            seq=self._last_seq,
            owner=draft.owner,
            kind=draft.kind,
            steps=draft.steps,
            created_ms=now_ms,
            keep_ms=draft.keep_ms,
            request_hash=draft.request_hash,
            idempotency_key=draft.idempotency_key,
            request_id=draft.request_id,
            inputs=draft.inputs,
        )
        self._enter(job)
        out.append(Put(job))
        return Accepted(job), out

    def forget(self, job_id: str) -> None:
        """A job that was just submitted could not be written: it never was."""
        job = self._jobs.pop(job_id)
        self._open.pop(job_id)
        self._keys.pop((job.owner, job.idempotency_key), None)
        self._bytes -= sum(life.files_of(job).values())

    def progressed(
        self, job_id: str, progress: float, *, running: bool, model: str = ""
    ) -> list[Effect]:
        """The step that runs is so far (0 to 1), or waits for its turn; it is not written."""
        if job_id not in self._running:
            return []
        job = self._jobs[job_id]
        position, step = _current(job)
        told = replace(
            step,
            state=StepState.RUNNING if running else StepState.WAITING,
            progress=max(step.progress, min(1.0, progress)),
            model=model or step.model,
        )
        if told == step:
            return []
        job = replace(life.with_step(job, position, told), revision=job.revision + 1)
        self._jobs[job_id] = job
        return [Tell(job)]

    def made(self, job_id: str, outcomes: tuple[Outcome, ...], now_ms: int) -> list[Effect]:
        """The step that ran is done; its outcomes lie in the job's folder (3)."""
        self._running.discard(job_id)
        job, out = self._jobs[job_id], list[Effect]()
        size = sum(made.size_bytes for made in outcomes)
        position, _ = _current(job)
        if job.cancel_requested:
            self._put(life.ended(job, JobState.CANCELLED, now_ms), out)
            out.append(Drop(job_id, _names(outcomes)))
        elif not self._could_hold(size):
            self._put(
                life.failed(job, position, Failure("storage_full", _STORAGE_FULL), now_ms), out
            )
            out.append(Drop(job_id, _names(outcomes)))
        else:
            self._make_room(size, out)
            self._put(life.step_done(job, position, outcomes, now_ms), out)
        return out + self.tick(now_ms)

    def failed(
        self, job_id: str, reason: str, message: str, retry_after_ms: int, now_ms: int
    ) -> list[Effect]:
        """The step that ran has failed: it is tried again, or its job has failed."""
        self._running.discard(job_id)
        job, out = self._jobs[job_id], list[Effect]()
        position, step = _current(job)
        breakdowns = step.breakdowns + (reason in BREAKDOWNS)
        if job.cancel_requested:
            job = life.ended(job, JobState.CANCELLED, now_ms)
        elif self._patience.gives_up(reason, breakdowns, now_ms - job.started_ms):
            job = life.failed(job, position, Failure(reason, message), now_ms)
        else:
            at_ms = now_ms + self._patience.pause_ms(step.misses + 1, retry_after_ms)
            step = replace(
                life.step_moved(step, StepState.WAITING, now_ms),
                misses=step.misses + 1,
                breakdowns=breakdowns,
                failure=Failure(reason, message, at_ms),
            )
            job = life.with_step(job, position, step)
        self._put(job, out)
        return out + self.tick(now_ms)

    def cancel(self, job_id: str, now_ms: int) -> list[Effect]:
        """End the job, if it has not ended (4)."""
        job, out = self._jobs[job_id], list[Effect]()
        if job.ended or job.cancel_requested:
            return []
        if job_id in self._running:
            self._put(replace(job, cancel_requested=True), out)
            return [*out, Stop(job_id)]
        self._put(life.ended(job, JobState.CANCELLED, now_ms), out)
        return out

    def stopped(self, job_id: str, now_ms: int) -> list[Effect]:
        """The step that was to be stopped has ended, and made nothing."""
        self._running.discard(job_id)
        out: list[Effect] = []
        self._put(life.ended(self._jobs[job_id], JobState.CANCELLED, now_ms), out)
        return out + self.tick(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed: what is over goes (5), what may run begins (2)."""
        out: list[Effect] = []
        for job_id in self._shelf.over(now_ms):
            self._remove(job_id, out)
        for job_id in self._open:
            if len(self._running) >= self._limits.running:
                break
            if job_id not in self._running and _ready_at_ms(self._jobs[job_id]) <= now_ms:
                self._begin(job_id, now_ms, out)
        return out

    # -- parts of events -------------------------------------------------------------------------

    def _begin(self, job_id: str, now_ms: int, out: list[Effect]) -> None:
        position, _ = _current(self._jobs[job_id])
        self._put(life.begun(self._jobs[job_id], position, now_ms), out)
        self._running.add(job_id)
        out.append(Begin(self._jobs[job_id], position))

    def _put(self, job: Job, out: list[Effect]) -> None:
        before = self._jobs[job.job_id]
        job = replace(job, revision=before.revision + 1)
        self._jobs[job.job_id] = job
        out.append(Put(job))
        if job.ended and not before.ended:
            self._open.pop(job.job_id)
            self._shelf.put(job)
        held, needed = life.files_of(before), life.files_of(job)
        self._bytes += sum(needed.values()) - sum(held.values())
        if gone := tuple(name for name in held if name not in needed):
            out.append(Drop(job.job_id, gone))

    def _enter(self, job: Job) -> None:
        self._jobs[job.job_id] = job
        self._last_seq = max(self._last_seq, job.seq)
        self._bytes += sum(life.files_of(job).values())
        if job.idempotency_key:
            self._keys[job.owner, job.idempotency_key] = job.job_id
        if not job.ended:
            self._open[job.job_id] = None

    def _remove(self, job_id: str, out: list[Effect]) -> None:
        job = self._jobs.pop(job_id)
        self._shelf.take(job_id)
        self._bytes -= sum(life.files_of(job).values())
        if job.idempotency_key:
            self._keys.pop((job.owner, job.idempotency_key))
        out.append(Remove(job_id))

    def _could_hold(self, more_bytes: int) -> bool:
        return self._bytes - self._shelf.held_bytes + more_bytes <= self._limits.bytes

    def _make_room(self, more_bytes: int, out: list[Effect]) -> None:
        while self._bytes + more_bytes > self._limits.bytes and (
            job_id := self._shelf.oldest_with_files()
        ):
            self._shelf.empty(job_id)
            self._put(replace(self._jobs[job_id], expired=True), out)


def _put_back(job: Job) -> Job:
    """An open job after a restart: the step that ran is to be run again."""
    position, step = _current(job)
    if step.state is not StepState.PENDING:
        step = replace(step, state=StepState.WAITING, progress=0.0)
    return replace(life.with_step(job, position, step), revision=job.revision + RESTART_GAP)


def _current(job: Job) -> tuple[int, Step]:
    position = life.next_position(job)
    assert position is not None  # noqa: S101 - it ends with its last step
    return position, job.steps[position]


def _ready_at_ms(job: Job) -> int:
    _, step = _current(job)
    return step.failure.retry_at_ms if step.failure else 0


def _inputs_bytes(draft: Draft) -> int:
    return sum(given.size_bytes for given in draft.inputs)


def _names(outcomes: tuple[Outcome, ...]) -> tuple[str, ...]:
    return tuple(made.name for made in outcomes)
