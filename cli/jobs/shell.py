"""What `cohabit jobs` does with the job service, and what it prints."""

import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import typer
from rich.console import Console

from cli.console import Refused, note
from cli.dial import INTERRUPTED, Dialled, with_house
from cli.jobs import saving, watching
from cli.jobs.page import job_sections, job_table
from cli.jobs.words import state_words
from cli.page import page_console, print_page
from cli.reach import Service, reached
from cohabit.jobs.v1 import jobs_pb2 as pb
from cohabit.jobs.v1 import jobs_pb2_grpc
from edge.jobs.calls import JobCalls
from edge.jobs.reading import job_view

T = TypeVar("T")

_JOBS = Service("jobs", "runs jobs", "docs/guides/jobs.md")
_RESUME_S = 30.0
"""How long a stream outlives a restart of its service."""
_STREAM_S = 3600.0
_PAGE = 200
_WIDEST = 160
"""Columns of the page where there is no terminal to ask."""


@dataclass(frozen=True, slots=True)
class Which:
    """Which jobs are meant, where the list is."""

    states: Sequence[str]
    """By name; empty: all."""
    limit: int
    owner: str
    """The API key that they were handed in with; empty: none."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be done with one job, besides showing it."""

    watch: bool = False
    folder: Path | None = None
    """Where its results go; None: nowhere."""
    force: bool = False


def show_list(config_path: Path | None, which: Which, *, follow: bool, as_json: bool) -> None:
    """Print the newest jobs, or keep them on the terminal."""
    if follow:
        _follow(config_path, which, as_json=as_json)
    jobs = _asked(config_path, lambda calls: newest(calls, which))
    if as_json:
        _print_json([_view(job) for job in jobs])
    else:
        print_page([job_table(jobs, time.time() * 1000)], page_console(_WIDEST))


def cancel(config_path: Path | None, owner: str, job_id: str, *, as_json: bool) -> None:
    """Ask a job to end, and print what it came to."""
    job = _asked(config_path, lambda calls: calls.cancel(owner, job_id))
    if as_json:
        _print_json(_view(job))
        return
    print(f"{job.job_id}: {state_words(job)}.")
    if job.cancel_requested:
        note(f"It ends with its call; `cohabit jobs {job.job_id} --watch` tells when.")


def show(config_path: Path | None, owner: str, job_id: str, wish: Wish, *, as_json: bool) -> None:
    """Print one job, once what is wished for is done. Exit 1 when a watched one did not succeed."""
    try:
        job, files = _asked(config_path, lambda calls: _done(calls, owner, job_id, wish))
    except KeyboardInterrupt:
        note(f"Left it; the job goes on unless `cohabit jobs {job_id} --cancel` ends it.")
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        _print_json(_view(job) | {"files": {name: str(path) for name, path in files.items()}})
    elif files:
        print("\n".join(map(str, files.values())))
    else:
        print_page(job_sections(job, time.time() * 1000), page_console(_WIDEST))
    if wish.watch and job.state != pb.JOB_STATE_SUCCEEDED:
        raise typer.Exit(1)


async def _done(
    calls: JobCalls, owner: str, job_id: str, wish: Wish
) -> tuple[pb.Job, dict[str, Path]]:
    if wish.watch:
        with watching.told() as tell:
            job = await watching.watched(calls, owner, job_id, tell)
    else:
        job = await calls.job(owner, job_id)
    failed = wish.watch and job.state != pb.JOB_STATE_SUCCEEDED  # which the page says better
    if wish.folder is None or failed:
        return job, {}
    return job, await saving.save(calls, job, wish.folder, force=wish.force)


def _follow(config_path: Path | None, which: Which, *, as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        raise Refused("--follow needs a terminal, and leaves no room for --json; leave it out.")

    async def drawn(calls: JobCalls) -> None:
        await watching.follow(lambda: newest(calls, which), console=Console(highlight=False))

    try:
        _asked(config_path, drawn)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _asked(config_path: Path | None, work: Callable[[JobCalls], Awaitable[T]]) -> T:
    """What the job service answers. Raises Refused."""

    async def dialled(house: Dialled) -> T:
        async with reached(house, _JOBS) as channel:
            return await work(JobCalls(jobs_pb2_grpc.JobServiceStub(channel), _RESUME_S, _STREAM_S))

    return with_house(config_path, dialled)


async def newest(calls: JobCalls, which: Which) -> list[pb.Job]:
    """At most as many jobs as are meant, in as many pages as that takes."""
    found: list[pb.Job] = []
    token = ""
    while True:
        request = pb.ListJobsRequest(
            owner=which.owner,
            states=[pb.JobState.Value(f"JOB_STATE_{state.upper()}") for state in which.states],
            page_size=min(_PAGE, which.limit - len(found)),
            page_token=token,
        )
        page = await calls.jobs(request)
        found += page.jobs
        token = page.next_page_token
        if not token or len(found) >= which.limit:
            return found


def _view(job: pb.Job) -> dict[str, Any]:
    """The job as HTTP tells it."""
    view: dict[str, Any] = msgspec.to_builtins(job_view(job))
    return view


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
