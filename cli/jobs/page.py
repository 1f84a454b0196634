"""Jobs as tables: many on one page, or one with its steps and results. Pure."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from cli.console import size
from cli.jobs.words import (
    bar,
    error_words,
    kind_word,
    kind_words,
    state_text,
    state_words,
    step_words,
)
from cli.page import or_none, problems, table_of
from cli.words import flat, span
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.jobs.reading import FINAL, role_of

_MOST_PROMPT_CHARS = 200
_FIRST_TO_SHRINK = ("kind", "error")
"""Columns that give way on a narrow terminal; an id has to stay whole."""


def job_table(jobs: Sequence[pb.Job], now_ms: float) -> RenderableType:
    """A line a job, in the order given."""
    table = table_of("Jobs", "id", "kind", "state", "progress", "#age", "error")
    for column in table.columns:
        column.no_wrap = column.header not in _FIRST_TO_SHRINK
    for job in jobs:
        table.add_row(
            Text(flat(job.job_id)),
            kind_word(job),
            state_text(job),
            bar(job.progress),
            span(now_ms - job.created_unix_ms),
            Text(error_words(job), "red", no_wrap=True, overflow="ellipsis"),
        )
    return or_none(table)


def job_sections(job: pb.Job, now_ms: float) -> list[RenderableType]:
    """One job, section by section."""
    shown: list[RenderableType] = [_facts(job, now_ms), or_none(_steps(job))]
    if job.results:
        shown.append(_results(job))
    error = error_words(job)
    return [*shown, problems([error])] if error else shown


def _facts(job: pb.Job, now_ms: float) -> Text:
    title = Text(f"{flat(job.job_id)}  ", "bold")
    title.append(f"{kind_words(job)}, ", "default")
    title.append_text(state_text(job))
    title.append(f" {job.progress:.0%}" if job.state not in FINAL else "", "default")
    prompt = prompt_of(job)
    lines = [
        title,
        *([Text(f'"{prompt}"')] if prompt else []),
        Text(", ".join(_times(job, now_ms))),
    ]
    return Text("\n").join(lines)


def _times(job: pb.Job, now_ms: float) -> list[str]:
    said = [f"created {span(now_ms - job.created_unix_ms)} ago"]
    if job.ended_unix_ms:
        began = job.started_unix_ms or job.created_unix_ms
        said.append(f"ended {span(now_ms - job.ended_unix_ms)} ago")
        said.append(f"took {(job.ended_unix_ms - began) / 1000:.1f} s")
    if job.expires_unix_ms:
        said.append(f"kept for {span(job.expires_unix_ms - now_ms)}")
    return said


def prompt_of(job: pb.Job) -> str:
    """What it was asked to paint, on one line; empty: nothing."""
    match job.spec.WhichOneof("work"):
        case "image_generation":
            prompt = job.spec.image_generation.picture.prompt
        case "foreground_generation":
            prompt = job.spec.foreground_generation.picture.prompt
        case "background_removal":
            prompt = job.spec.background_removal.cutout.generated.picture.prompt
        case _:
            prompt = ""
    line = flat(prompt)
    return line if len(line) <= _MOST_PROMPT_CHARS else f"{line[:_MOST_PROMPT_CHARS]}…"


def _steps(job: pb.Job) -> Table:
    table = table_of("Steps", "step", "state", "progress", "model", "#tries", "#took", "error")
    for step in job.steps:
        took_ms = step.ended_unix_ms - step.started_unix_ms
        table.add_row(
            step_words(job, step),
            pb.StepState.Name(step.state).removeprefix("STEP_STATE_").lower(),
            bar(step.progress),
            Text(flat(step.model_key)),
            str(step.attempts or ""),
            f"{took_ms / 1000:.1f} s" if step.ended_unix_ms and step.started_unix_ms else "",
            Text(flat(step.failure.message or step.failure.reason), "red"),
        )
    return table


def _results(job: pb.Job) -> Table:
    table = table_of("Results", "id", "is", "#pixels", "type", "#size", "#seed", "")
    for result in job.results:
        table.add_row(
            Text(flat(result.result_id)),
            role_of(result),
            f"{result.width_px}x{result.height_px}",
            Text(flat(result.mime_type)),
            size(result.size_bytes),
            str(result.seed) if result.HasField("seed") else "",
            Text("expired", "red") if result.expired else "",
        )
    return table


def not_there(job: pb.Job) -> str:
    """Why a job has no results to write; empty: it has."""
    if job.state == pb.JOB_STATE_SUCCEEDED:
        return ""
    if job.state in FINAL:
        return f"{flat(job.job_id)} has no results: it {_end(job)}."
    return (
        f"{flat(job.job_id)} has no results yet ({state_words(job)}, {job.progress:.0%}); "
        "add --watch to wait for them."
    )


def _end(job: pb.Job) -> str:
    return "was cancelled" if job.state == pb.JOB_STATE_CANCELLED else "failed"
