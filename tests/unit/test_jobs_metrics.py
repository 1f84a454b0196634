"""What Prometheus sees of the book of jobs."""

from types import SimpleNamespace
from typing import Any

from chassis import metrics as of_process
from chassis.clock import steady_ms
from services.jobs import metrics
from services.jobs.core.values import Job, JobKind, JobState
from tests.metrics_kit import values_in

HOUR_MS = 3_600_000


def job(name: str, age_ms: int, state: JobState) -> Job:
    kind, created_ms = next(iter(JobKind)), steady_ms() - age_ms
    return Job(name, 1, "o", kind, (), created_ms, HOUR_MS, b"", state=state)


async def test_what_has_ended_is_counted_and_is_not_waited_for() -> None:
    jobs = [
        job("old", 2 * HOUR_MS, JobState.SUCCEEDED),
        job("open", HOUR_MS, JobState.RUNNING),
        job("new", 0, JobState.QUEUED),
    ]
    book: Any = SimpleNamespace(jobs={one.job_id: one for one in jobs})
    forget = metrics.follow(book)
    try:
        values = values_in(await of_process.text())
    finally:
        forget()
    assert 3600 <= values["cohabit_jobs_oldest_open_seconds"] < 3700
    kind = jobs[0].kind.name.lower()
    for state, count in (("succeeded", 1), ("running", 1), ("queued", 1), ("failed", 0)):
        assert values[f'cohabit_jobs{{kind="{kind}",state="{state}"}}'] == count
