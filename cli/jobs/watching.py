"""A job or the list of jobs, followed: bars on a terminal, a line for each change elsewhere."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from chassis.errors import Fault
from cli.console import note
from cli.jobs.page import job_table
from cli.jobs.words import stage, step_at_work, step_words
from cli.page import problems
from cli.reach import sentence
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.jobs.calls import JobCalls
from edge.jobs.reading import FINAL

_POLL_S = 1.0
"""Between two lists: the contract streams single jobs alone."""

Tell = Callable[[pb.Job], None]


async def watched(calls: JobCalls, owner: str, job_id: str, tell: Tell) -> pb.Job:
    """The job when it has ended, with its request; each change is told. Raises Fault."""
    first = last = await calls.job(owner, job_id)
    tell(first)
    if first.state in FINAL:
        return first
    changes = calls.watch(owner, job_id, first.revision)
    async with aclosing(changes):
        async for last in changes:
            tell(last)
    last.spec.CopyFrom(first.spec)
    return last


@contextmanager
def told() -> Iterator[Tell]:
    """Bars that go away at the end, on a terminal; a line on stderr for each change elsewhere."""
    if sys.stderr.isatty():
        with _bars() as tell:
            yield tell
    else:
        yield _lines()


def _lines() -> Tell:
    said = ""

    def tell(job: pb.Job) -> None:
        nonlocal said
        if (now := stage(job)) != said:
            said = now
            note(f"{job.progress:4.0%}  {now}")

    return tell


@contextmanager
def _bars() -> Iterator[Tell]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        whole = bars.add_task("", total=1.0)
        part = bars.add_task("", total=1.0, visible=False)

        def tell(job: pb.Job) -> None:
            bars.update(whole, description=stage(job), completed=job.progress)
            step = step_at_work(job)
            words = step_words(job, step) if step else ""
            done = step.progress if step else 0.0
            bars.update(part, description=f"  {words}", completed=done, visible=step is not None)

        yield tell


async def follow(ask: Callable[[], Awaitable[Sequence[pb.Job]]], console: Console) -> None:
    """Draw the list again and again, until cancelled. Raises Fault when it is silent at first."""
    jobs, trouble = await ask(), ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            page = job_table(jobs, time.time() * 1000)
            shown = Group(problems([trouble]), page) if trouble else page
            live.update(shown, refresh=True)
            await asyncio.sleep(_POLL_S)
            try:
                jobs, trouble = await ask(), ""
            except Fault as fault:  # what was there stays in sight
                trouble = sentence(fault)
