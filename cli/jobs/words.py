"""Jobs in words: kinds, states, how far they are, and what happens in them now. Pure."""

from rich.text import Text

from cli.words import flat
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.jobs.reading import KINDS, STATES

_STATE_STYLES = {"succeeded": "green", "failed": "red", "running": "yellow", "cancelled": "dim"}
_BAR_CELLS = 8
_SHORT_KINDS = {
    pb.JOB_KIND_IMAGE_GENERATION: "images",
    pb.JOB_KIND_FOREGROUND_GENERATION: "foreground",
    pb.JOB_KIND_BACKGROUND_REMOVAL: "cutout",
    pb.JOB_KIND_PUBLICATION: "publication",
}
_STEP_KINDS = {
    pb.STEP_KIND_GENERATE: "painting",
    pb.STEP_KIND_GENERATE_BACKDROP: "painting the backdrop",
    pb.STEP_KIND_MATTE: "cutting out",
    pb.STEP_KIND_COMPOSITE: "putting together",
    pb.STEP_KIND_PUBLISH: "publishing",
}
_AT_WORK = (pb.STEP_STATE_WAITING, pb.STEP_STATE_RUNNING)


def kind_words(job: pb.Job) -> str:
    """E.g. "image generation"."""
    return KINDS.get(job.kind, str(job.kind)).replace("_", " ")


def kind_word(job: pb.Job) -> str:
    """The kind in a word, for the list."""
    return _SHORT_KINDS.get(job.kind, str(job.kind))


def state_word(job: pb.Job) -> str:
    """E.g. "running"."""
    return STATES.get(job.state, str(job.state))


def state_words(job: pb.Job) -> str:
    """The state, with the place of a queued job and the wish to end a running one."""
    word = state_word(job)
    if job.cancel_requested:
        return f"{word}, to be cancelled"
    if job.state == pb.JOB_STATE_QUEUED:
        return f"{word}, {job.position} before it" if job.position else f"{word}, next"
    return word


def state_text(job: pb.Job) -> Text:
    """The state in its colour."""
    return Text(state_words(job), _STATE_STYLES.get(state_word(job), ""))


def bar(progress: float) -> Text:
    """A short bar with its figure, e.g. "━━━─────  40%"."""
    full = min(_BAR_CELLS, max(0, int(progress * _BAR_CELLS)))
    text = Text("━" * full, "green")
    text.append("─" * (_BAR_CELLS - full), "dim")
    return text.append(f" {progress:4.0%}", "default")


def error_words(job: pb.Job) -> str:
    """Why it failed; empty: it has not."""
    return flat(job.failure.message or job.failure.reason) if job.HasField("failure") else ""


def step_words(job: pb.Job, step: pb.Step) -> str:
    """What a step does, and which of several alike it is, e.g. "painting 2 of 3"."""
    word = _STEP_KINDS.get(step.kind, f"step of kind {step.kind}")
    alike = sum(other.kind == step.kind for other in job.steps)
    return f"{word} {step.index + 1} of {alike}" if alike > 1 else word


def step_at_work(job: pb.Job) -> pb.Step | None:
    """The step that waits or runs now; None: there is none."""
    return next((step for step in job.steps if step.state in _AT_WORK), None)


def stage(job: pb.Job) -> str:
    """What happens now, e.g. "running: painting 2 of 3, waiting for its turn"."""
    step = step_at_work(job)
    if job.state != pb.JOB_STATE_RUNNING or step is None:
        return state_words(job)
    said = f"{state_words(job)}: {step_words(job, step)}"
    if step.state == pb.STEP_STATE_RUNNING:
        return said
    if step.HasField("failure"):
        return f"{said}, to be tried again: {flat(step.failure.message or step.failure.reason)}"
    return f"{said}, waiting for its turn"
