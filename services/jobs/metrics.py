"""Prometheus metrics of the job service."""

from collections import Counter as Tally
from collections.abc import Callable
from functools import partial

from prometheus_client import Counter, Gauge

from chassis.clock import steady_ms
from chassis.metrics import on_scrape
from services.jobs.core.book import Book
from services.jobs.core.values import Job, JobKind, JobState

JOBS = Gauge("cohabit_jobs", "Jobs on record.", ["kind", "state"])
OLDEST = Gauge("cohabit_jobs_oldest_open_seconds", "Age of the oldest job that has not ended.")
STEPS_RUNNING = Gauge("cohabit_jobs_steps_running", "Steps under way, those that wait included.")
HELD_BYTES = Gauge("cohabit_jobs_held_bytes", "Bytes of inputs, outcomes and results.")
ENDED = Counter("cohabit_jobs_ended_total", "Jobs that have ended.", ["kind", "state", "reason"])


def follow(book: Book) -> Callable[[], None]:
    """Show the book whenever somebody looks; call what comes back to end it."""
    return on_scrape(partial(_publish, book))


async def _publish(book: Book) -> None:
    found = Tally((job.kind, job.state) for job in book.jobs.values())
    for kind in JobKind:
        for state in JobState:
            JOBS.labels(kind.name.lower(), state.name.lower()).set(found[kind, state])
    open_ms = [job.created_ms for job in book.jobs.values() if not job.ended]
    OLDEST.set(max(0, steady_ms() - min(open_ms)) / 1000 if open_ms else 0)
    STEPS_RUNNING.set(len(book.running))
    HELD_BYTES.set(book.held_bytes)


def count(before: Job | None, job: Job) -> None:
    """A job is shown; it may have ended since it was shown before."""
    if job.ended and before is not None and not before.ended:
        reason = job.failure.reason if job.failure else ""
        ENDED.labels(job.kind.name.lower(), job.state.name.lower(), reason).inc()
