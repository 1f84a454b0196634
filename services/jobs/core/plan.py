"""Which steps a job takes, and what share of its time each is expected to be."""

from dataclasses import dataclass

from services.jobs.core.values import Job, JobKind, Step, StepKind

WEIGHTS: dict[StepKind, float] = {
    StepKind.GENERATE: 20.0,
    StepKind.GENERATE_BACKDROP: 20.0,
    StepKind.MATTE: 2.0,
    StepKind.COMPOSITE: 1.0,
}
"""Expected time, in parts: many passes of a large network, one of a small one, arithmetic."""


@dataclass(frozen=True, slots=True)
class Work:
    """What decides over the steps of a job."""

    kind: JobKind
    picture_model: str = ""
    count: int = 1
    matte_model: str = ""
    backdrop_model: str = ""
    """Empty: no backdrop is generated."""


def steps_of(work: Work) -> tuple[Step, ...]:
    """The steps, in the order they run."""
    match work.kind:
        case JobKind.IMAGE_GENERATION:
            model = work.picture_model
            return tuple(Step(StepKind.GENERATE, model, index) for index in range(work.count))
        case JobKind.FOREGROUND_GENERATION:
            return (Step(StepKind.GENERATE, work.picture_model), *_cutout(work))
        case JobKind.BACKGROUND_REMOVAL:
            return _cutout(work)


def _cutout(work: Work) -> tuple[Step, ...]:
    matte = Step(StepKind.MATTE, work.matte_model)
    if not work.backdrop_model:
        return (matte,)
    return (
        matte,
        Step(StepKind.GENERATE_BACKDROP, work.backdrop_model),
        Step(StepKind.COMPOSITE, ""),
    )


def progress_of(job: Job) -> float:
    """How far the job is, 0 to 1, over all steps by their expected time."""
    whole = sum(WEIGHTS[step.kind] for step in job.steps)
    done = sum(WEIGHTS[step.kind] * step.progress for step in job.steps)
    return min(1.0, done / whole) if whole else 0.0
