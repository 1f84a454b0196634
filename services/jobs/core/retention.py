"""What goes first among the jobs that have ended."""

import heapq
from collections.abc import Iterator

from services.jobs.core.life import files_of
from services.jobs.core.values import Job


class Shelf:
    """The jobs that have ended, in the order in which they did, with the bytes each still holds."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        """Of every job here."""
        self._full: dict[str, None] = {}
        """Those that hold files."""
        self._expiries: list[tuple[int, str]] = []
        """A heap; it may name jobs that were taken before their time."""
        self.held_bytes = 0

    def put(self, job: Job) -> None:
        """A job has ended."""
        size = sum(files_of(job).values())
        self._bytes[job.job_id] = size
        self.held_bytes += size
        if size:
            self._full[job.job_id] = None
        heapq.heappush(self._expiries, (job.expires_ms, job.job_id))

    def empty(self, job_id: str) -> None:
        """Its files go, its record stays."""
        self.held_bytes -= self._bytes[job_id]
        self._bytes[job_id] = 0
        self._full.pop(job_id, None)

    def take(self, job_id: str) -> None:
        """It goes altogether."""
        self.empty(job_id)
        del self._bytes[job_id]
        if len(self._expiries) > 2 * len(self._bytes) + 16:
            self._expiries = [entry for entry in self._expiries if entry[1] in self._bytes]
            heapq.heapify(self._expiries)

    def oldest(self) -> str:
        """The one that ended first."""
        return next(iter(self._bytes))

    def oldest_with_files(self) -> str:
        """As `oldest`, of those that hold files; empty: none does."""
        return next(iter(self._full), "")

    def over(self, now_ms: int) -> Iterator[str]:
        """Jobs whose time is over; the caller takes each before it asks for the next."""
        while self._due() and self._expiries[0][0] <= now_ms:
            yield heapq.heappop(self._expiries)[1]

    def next_at_ms(self) -> int | None:
        """When the next one's time is over."""
        return self._expiries[0][0] if self._due() else None

    def _due(self) -> bool:
        while self._expiries and self._expiries[0][1] not in self._bytes:
            heapq.heappop(self._expiries)
        return bool(self._expiries)
