"""Jobs across restarts: one SQLite file, `jobs.db`.

Written ahead (WAL) with `synchronous=FULL`: what `write` has returned from is on the disk, all of
it or, after a crash, none. One connection, used by one thread at a time. What jobs mean is the
core's affair; their pictures are files, next door.
"""

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from services.jobs import rows
from services.jobs.core.values import Job, Outcome, Put, Remove, Step

NAME = "jobs.db"


class StoreError(Exception):
    """The store cannot be used; the text says why and what to do."""


class Store:
    """The open database. Its methods block on the disk, and are called one at a time."""

    def __init__(self, folder: Path) -> None:
        """Open, or begin, the database in `folder` and lock it. Raises StoreError."""
        self._path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _locked(folder / f"{NAME}.lock")
        except OSError as error:
            raise StoreError(f"{folder} cannot be written: {error.strerror}") from None
        self._written: dict[str, Job] = {}
        """What stands there of the jobs that have not ended."""
        try:
            self._db = _opened(self._path)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise StoreError(
                f"{self._path} cannot be used ({error}); put back the right file, or move it away "
                "to begin without jobs"
            ) from None

    def jobs(self) -> list[Job]:
        """Every job, oldest first."""
        outcomes: dict[tuple[str, int], list[Outcome]] = {}
        for row in self._db.execute("SELECT * FROM outcomes ORDER BY job_id, position, role, kept"):
            outcomes.setdefault((row["job_id"], row["position"]), []).append(rows.outcome_of(row))
        steps: dict[str, list[Step]] = {}
        for row in self._db.execute("SELECT * FROM steps ORDER BY job_id, position"):
            made = outcomes.get((row["job_id"], row["position"]), ())
            steps.setdefault(row["job_id"], []).append(rows.step_of(row, made))
        found = self._db.execute("SELECT * FROM jobs ORDER BY seq")
        return [rows.job_of(row, steps[row["job_id"]]) for row in found]

    def spec(self, job_id: str) -> bytes | None:
        """What the job was asked for, as it was accepted; None: there is no such job."""
        row = self._db.execute("SELECT spec FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
        return None if row is None else bytes(row["spec"])

    def write(self, effects: Sequence[Put | Remove], spec: bytes = b"") -> None:
        """Write all of it or, raising sqlite3.Error, nothing; `spec` is that of a new job."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for effect in effects:
                match effect:
                    case Put(job=job):
                        self._put(job, spec)
                    case Remove(job_id=job_id):
                        self._db.execute("DELETE FROM jobs WHERE job_id = ?", (job_id,))
        for effect in effects:
            if isinstance(effect, Put) and not effect.job.ended:
                self._written[effect.job.job_id] = effect.job
            elif isinstance(effect, Put):
                self._written.pop(effect.job.job_id, None)

    def close(self) -> None:
        """Let go of the file and its lock."""
        self._db.close()
        os.close(self._lock)

    def _put(self, job: Job, spec: bytes) -> None:
        self._db.execute(rows.PUT_JOB, rows.job_row(job, spec))
        before = self._written.get(job.job_id)
        known = before.steps if before is not None else (None,) * len(job.steps)
        changed = [n for n, step in enumerate(job.steps) if step != known[n]]
        self._db.executemany(
            rows.PUT_STEP, [rows.step_row(job.job_id, n, job.steps[n]) for n in changed]
        )
        made = [rows.outcome_row(job.job_id, n, m) for n in changed for m in job.steps[n].outcomes]
        self._db.executemany(rows.PUT_OUTCOME, made)


def _opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    try:
        path.chmod(0o600)
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("PRAGMA foreign_keys=ON")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            db.executescript(
                f"BEGIN IMMEDIATE; {rows.SCHEMA} PRAGMA user_version={rows.VERSION}; COMMIT;"
            )
        elif version != rows.VERSION:
            raise sqlite3.DatabaseError(f"it is of version {version}, this is {rows.VERSION}")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _locked(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise StoreError(
            f"{path}: another job service keeps its jobs here; stop it, or give this one a "
            "jobs.dir of its own"
        ) from None
    return fd
