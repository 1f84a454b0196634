"""Prometheus metrics of the job service."""

from prometheus_client import Counter, Gauge

from services.jobs.core.book import Book
from services.jobs.core.values import Job

JOBS = Gauge("cohabit_jobs", "Jobs on record.")
STEPS_RUNNING = Gauge("cohabit_jobs_steps_running", "Steps under way, those that wait included.")
HELD_BYTES = Gauge("cohabit_jobs_held_bytes", "Bytes of inputs, outcomes and results.")
ENDED = Counter("cohabit_jobs_ended_total", "Jobs that have ended.", ["kind", "state", "reason"])


def publish(book: Book) -> None:
    """The gauges as they are now."""
    JOBS.set(len(book.jobs))
    STEPS_RUNNING.set(len(book.running))
    HELD_BYTES.set(book.held_bytes)


def count(before: Job | None, job: Job) -> None:
    """A job is shown; it may have ended since it was shown before."""
    if job.ended and before is not None and not before.ended:
        reason = job.failure.reason if job.failure else ""
        ENDED.labels(job.kind.name.lower(), job.state.name.lower(), reason).inc()
