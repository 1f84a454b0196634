"""The life of a job and of its steps, as tables; whatever is not in them cannot happen.

job    QUEUED ── begun ──▶ RUNNING ── done ──▶ SUCCEEDED
          └─ cancelled ─┐     ├────── failed ─▶ FAILED
                        └▶ CANCELLED ◀─ cancelled
step   PENDING ─▶ WAITING ◀─▶ RUNNING ─▶ DONE, FAILED, SKIPPED
"""

from dataclasses import replace

from services.jobs.core.values import Failure, Job, JobState, Outcome, Role, Step, StepState

_J, _S = JobState, StepState

JOB_MOVES: dict[JobState, frozenset[JobState]] = {
    _J.QUEUED: frozenset({_J.RUNNING, _J.CANCELLED}),
    _J.RUNNING: frozenset({_J.SUCCEEDED, _J.FAILED, _J.CANCELLED}),
    _J.SUCCEEDED: frozenset(),
    _J.FAILED: frozenset(),
    _J.CANCELLED: frozenset(),
}

STEP_MOVES: dict[StepState, frozenset[StepState]] = {
    _S.PENDING: frozenset({_S.WAITING, _S.SKIPPED}),
    _S.WAITING: frozenset({_S.RUNNING, _S.WAITING, _S.DONE, _S.FAILED, _S.SKIPPED}),
    _S.RUNNING: frozenset({_S.WAITING, _S.DONE, _S.FAILED, _S.SKIPPED}),
    _S.DONE: frozenset(),
    _S.FAILED: frozenset(),
    _S.SKIPPED: frozenset(),
}

_ENDED = (_S.DONE, _S.FAILED, _S.SKIPPED)


class ImpossibleMove(Exception):
    """The table has no such move: a mistake of ours."""


def step_moved(step: Step, to: StepState, now_ms: int) -> Step:
    """The step in its new state. Raises ImpossibleMove."""
    if to not in STEP_MOVES[step.state]:
        raise ImpossibleMove(f"step {step.kind.name}: {step.state.name} to {to.name}")
    ended_ms = now_ms if to in _ENDED else step.ended_ms
    return replace(step, state=to, ended_ms=ended_ms)


def with_step(job: Job, position: int, step: Step) -> Job:
    """The job with the step at `position` replaced."""
    return replace(job, steps=(*job.steps[:position], step, *job.steps[position + 1 :]))


def next_position(job: Job) -> int | None:
    """The step that is to be run now; None: all are done."""
    return next((n for n, step in enumerate(job.steps) if step.state not in _ENDED), None)


def begun(job: Job, position: int, now_ms: int) -> Job:
    """The job with a step begun once more."""
    step = step_moved(job.steps[position], _S.WAITING, now_ms)
    step = replace(step, attempts=step.attempts + 1, started_ms=step.started_ms or now_ms)
    job = with_step(job, position, step)
    if job.state is _J.QUEUED:
        job = replace(_moved(job, _J.RUNNING), started_ms=now_ms)
    return job


def step_done(job: Job, position: int, outcomes: tuple[Outcome, ...], now_ms: int) -> Job:
    """The job with a step done; SUCCEEDED when it was the last."""
    step = step_moved(job.steps[position], _S.DONE, now_ms)
    step = replace(step, progress=1.0, failure=None, outcomes=outcomes)
    job = with_step(job, position, step)
    return job if next_position(job) is not None else ended(job, _J.SUCCEEDED, now_ms)


def failed(job: Job, position: int, failure: Failure, now_ms: int) -> Job:
    """The job FAILED by one of its steps."""
    step = replace(step_moved(job.steps[position], _S.FAILED, now_ms), failure=failure)
    return ended(with_step(job, position, step), _J.FAILED, now_ms, failure)


def ended(job: Job, state: JobState, now_ms: int, failure: Failure | None = None) -> Job:
    """The job in a final state; steps that were not reached are SKIPPED."""
    steps = tuple(s if s.state in _ENDED else step_moved(s, _S.SKIPPED, now_ms) for s in job.steps)
    return replace(
        _moved(job, state),
        steps=steps,
        failure=failure,
        cancel_requested=False,
        ended_ms=now_ms,
        expires_ms=now_ms + job.keep_ms,
    )


def files_of(job: Job) -> dict[str, int]:
    """The files that the job needs, with their sizes; whatever else lies in its folder may go."""
    if job.expired or job.state in (_J.FAILED, _J.CANCELLED):
        return {}
    if job.state is _J.SUCCEEDED:
        return {made.name: made.size_bytes for made in job.results}
    made = {m.name: m.size_bytes for step in job.steps for m in step.outcomes}
    return {given.name: given.size_bytes for given in job.inputs} | made


def outcome_of(job: Job, role: Role, *, kept: bool) -> Outcome | None:
    """What an earlier step made."""
    made = (m for step in job.steps for m in step.outcomes)
    return next((m for m in made if m.role is role and m.kept is kept), None)


def _moved(job: Job, to: JobState) -> Job:
    if to not in JOB_MOVES[job.state]:
        raise ImpossibleMove(f"job {job.job_id}: {job.state.name} to {to.name}")
    return replace(job, state=to)
