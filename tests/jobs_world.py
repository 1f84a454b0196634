"""A disk and a device for the book of jobs, both made up, and a judge of what it does with them.

Effects are performed one at a time; the world can end after any of them, and begins anew with what
was written. The judge is dumb on purpose: it keeps what was ever told and ever recorded, and knows
nothing of why.
"""

from dataclasses import dataclass, field

from services.jobs.core.book import Book
from services.jobs.core.life import files_of
from services.jobs.core.plan import Work, steps_of
from services.jobs.core.retries import Patience
from services.jobs.core.values import (
    Accepted,
    Begin,
    Draft,
    Drop,
    Effect,
    Input,
    Job,
    JobKind,
    JobState,
    Limits,
    Outcome,
    Put,
    Refused,
    Remove,
    Role,
    Stop,
    Tell,
)

LIMITS = Limits(running=2, open_jobs=6, jobs=9, bytes=1000)
PATIENCE = Patience(breakdowns=3, age_ms=3_600_000, first_ms=1000, most_ms=60_000)
KEEP_MS = 600_000

WORKS = {
    "picture": Work(JobKind.IMAGE_GENERATION, picture_model="p"),
    "three": Work(JobKind.IMAGE_GENERATION, picture_model="p", count=3),
    "foreground": Work(JobKind.FOREGROUND_GENERATION, picture_model="p", matte_model="m"),
    "cutout": Work(JobKind.BACKGROUND_REMOVAL, matte_model="m"),
    "backdrop": Work(JobKind.BACKGROUND_REMOVAL, matte_model="m", backdrop_model="p"),
}


def draft(name: str, work: str = "picture", *, key: str = "", input_bytes: int = 0) -> Draft:
    return Draft(
        job_id=name,
        owner="o",
        kind=WORKS[work].kind,
        steps=steps_of(WORKS[work]),
        keep_ms=KEEP_MS,
        request_hash=work.encode(),
        idempotency_key=key,
        request_id="r",
        inputs=(Input("image", input_bytes),) if input_bytes else (),
    )


def outcome(job: Job, position: int, size_bytes: int) -> Outcome:
    step = job.steps[position]
    last = position == len(job.steps) - 1
    return Outcome(
        name=f"{position}-{step.attempts}",
        role=Role.IMAGE,
        index=step.index,
        kept=last or job.kind is JobKind.IMAGE_GENERATION,
        mime_type="image/webp",
        size_bytes=size_bytes,
        sha256=bytes(32),
        width_px=8,
        height_px=8,
    )


class WorldEnds(Exception):
    """Between two effects."""


@dataclass
class Judge:
    """What must hold over all restarts."""

    revisions: dict[str, int] = field(default_factory=dict)
    ends: dict[str, Job] = field(default_factory=dict)
    cancels: set[str] = field(default_factory=set)
    done: dict[tuple[str, int], tuple[Outcome, ...]] = field(default_factory=dict)

    def told(self, job: Job) -> None:
        known = self.revisions.get(job.job_id, 0)
        assert job.revision > known, f"revision {job.revision} after {known}"
        self.revisions[job.job_id] = job.revision
        if job.job_id in self.ends:
            end = self.ends[job.job_id]
            assert (job.state, job.failure) == (end.state, end.failure), "it ended twice"
        elif job.ended:
            self.ends[job.job_id] = job
        if job.cancel_requested:
            self.cancels.add(job.job_id)
        if job.ended and job.job_id in self.cancels:
            assert job.state is JobState.CANCELLED, "it was to end, and went on"
        for position, step in enumerate(job.steps):
            known_done = self.done.get((job.job_id, position))
            if known_done is not None:
                assert step.outcomes == known_done, "a recorded step was recorded again"
            elif step.outcomes:
                self.done[job.job_id, position] = step.outcomes

    def begun(self, job: Job, position: int) -> None:
        assert (job.job_id, position) not in self.done, "a recorded step was run again"
        assert job.job_id not in self.ends, "a step of a job that has ended was run"


class World:
    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.book = Book(limits, PATIENCE)
        self.judge = Judge()
        self.rows: dict[str, Job] = {}
        self.files: dict[str, dict[str, int]] = {}
        self.calls: dict[str, int] = {}
        """What runs: the position of the step, by job."""
        self.stopping: set[str] = set()
        self.now_ms = 1_000_000
        self.left: int | None = None
        """So many effects until the world ends; None: it does not."""

    # -- what the shell does -------------------------------------------------------------------

    def submit(self, asked: Draft) -> Accepted | Refused:
        if (said := self.book.look(asked)) is not None:
            return said
        self.files[asked.job_id] = {given.name: given.size_bytes for given in asked.inputs}
        self._effect()
        said, effects = self.book.submit(asked, self.now_ms)
        if isinstance(said, Refused) or said.existing:
            del self.files[asked.job_id]
        self.perform(effects)
        self.tick()
        return said

    def made(self, job_id: str, size_bytes: int = 100) -> Outcome:
        position = self.calls.pop(job_id)
        self.stopping.discard(job_id)
        made = outcome(self.book.jobs[job_id], position, size_bytes)
        self.files.setdefault(job_id, {})[made.name] = made.size_bytes
        self._effect()
        self.perform(self.book.made(job_id, (made,), self.now_ms))
        return made

    def failed(self, job_id: str, reason: str, retry_after_ms: int = 0) -> None:
        self.calls.pop(job_id)
        self.stopping.discard(job_id)
        self.perform(self.book.failed(job_id, reason, "It broke.", retry_after_ms, self.now_ms))

    def stopped(self, job_id: str) -> None:
        self.calls.pop(job_id)
        self.stopping.discard(job_id)
        self.perform(self.book.stopped(job_id, self.now_ms))

    def cancel(self, job_id: str) -> None:
        self.perform(self.book.cancel(job_id, self.now_ms))
        self.tick()

    def progressed(self, job_id: str, progress: float) -> None:
        self.perform(self.book.progressed(job_id, progress, running=True))

    def tick(self, later_ms: int = 0) -> None:
        self.now_ms += later_ms
        self.perform(self.book.tick(self.now_ms))

    def restart(self) -> None:
        """Begin anew with what was written, as after a crash."""
        self.calls.clear()
        self.stopping.clear()
        self.book = Book(self.limits, PATIENCE)
        for job_id in list(self.files):
            needed = files_of(self.rows[job_id]) if job_id in self.rows else {}
            kept = {name: size for name, size in self.files[job_id].items() if name in needed}
            self.files[job_id] = kept
        self.perform(self.book.resume(self.rows.values(), self.now_ms))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Put(job=job):
                    self.rows[job.job_id] = job
                    self.judge.told(job)
                case Tell(job=job):
                    self.judge.told(job)
                case Remove(job_id=job_id):
                    assert self.rows.pop(job_id).ended, "a job that had not ended was removed"
                    self.files.pop(job_id, None)
                case Drop(job_id=job_id, names=names):
                    for name in names:
                        self.files[job_id].pop(name, None)
                case Begin(job=job, position=position):
                    self.judge.begun(job, position)
                    self.calls[job.job_id] = position
                case Stop(job_id=job_id):
                    self.stopping.add(job_id)
            self._effect()

    def _effect(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise WorldEnds

    # -- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        """Between events, when no effect is outstanding."""
        assert self.book.jobs == self._with_progress()
        assert set(self.calls) == self.book.running
        assert len(self.calls) <= self.limits.running
        held = {job_id: files_of(job) for job_id, job in self.rows.items()}
        assert {k: v for k, v in self.files.items() if v} == {k: v for k, v in held.items() if v}
        assert self.book.held_bytes == sum(sum(files.values()) for files in held.values())
        assert self.book.held_bytes <= self.limits.bytes
        assert len(self.rows) <= self.limits.jobs
        assert sum(not job.ended for job in self.rows.values()) <= self.limits.open_jobs

    def _with_progress(self) -> dict[str, Job]:
        """What is written; of those that run, what was told since."""
        return {
            key: self.book.jobs[key] if key in self.calls else job for key, job in self.rows.items()
        }
