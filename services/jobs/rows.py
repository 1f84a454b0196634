"""The tables of `jobs.db`, and how a job stands in them."""

import sqlite3
from collections.abc import Iterable

import msgspec

from services.jobs.core.values import (
    Failure,
    Input,
    Job,
    JobKind,
    JobState,
    Outcome,
    Role,
    Step,
    StepKind,
    StepState,
)

VERSION = 1
"""Of the tables, as `user_version` has it."""

SCHEMA = """
CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL UNIQUE,
  owner TEXT NOT NULL,
  kind INTEGER NOT NULL,
  state INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  cancel_requested INTEGER NOT NULL,
  failure TEXT,
  idempotency_key TEXT,
  request_hash BLOB NOT NULL,
  request_id TEXT NOT NULL,
  inputs TEXT NOT NULL,
  keep_ms INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  started_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  expired INTEGER NOT NULL,
  spec BLOB NOT NULL,
  UNIQUE (owner, idempotency_key)
) STRICT;
CREATE TABLE steps (
  job_id TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
  position INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  model TEXT NOT NULL,
  idx INTEGER NOT NULL,
  state INTEGER NOT NULL,
  progress REAL NOT NULL,
  attempts INTEGER NOT NULL,
  misses INTEGER NOT NULL,
  breakdowns INTEGER NOT NULL,
  failure TEXT,
  started_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  PRIMARY KEY (job_id, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE outcomes (
  job_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  role INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  kept INTEGER NOT NULL,
  mime_type TEXT NOT NULL,
  size_bytes INTEGER NOT NULL,
  sha256 BLOB NOT NULL,
  width_px INTEGER NOT NULL,
  height_px INTEGER NOT NULL,
  seed TEXT,
  PRIMARY KEY (job_id, position, name),
  FOREIGN KEY (job_id, position) REFERENCES steps (job_id, position) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
"""
# A seed has 64 bits and no sign, an INTEGER of SQLite has a sign: it is kept as text.

PUT_JOB = """
INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id) DO UPDATE SET
  state = excluded.state, revision = excluded.revision,
  cancel_requested = excluded.cancel_requested, failure = excluded.failure,
  started_ms = excluded.started_ms, ended_ms = excluded.ended_ms,
  expires_ms = excluded.expires_ms, expired = excluded.expired
"""
PUT_STEP = """
INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id, position) DO UPDATE SET
  model = excluded.model, state = excluded.state, progress = excluded.progress,
  attempts = excluded.attempts, misses = excluded.misses, breakdowns = excluded.breakdowns,
  failure = excluded.failure, started_ms = excluded.started_ms, ended_ms = excluded.ended_ms
"""
# Outcomes never change: a second one under the same name would be a step that was recorded twice.
PUT_OUTCOME = """
INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""


def job_row(job: Job, spec: bytes) -> tuple[object, ...]:
    """In the order of the table's columns, as `PUT_JOB` takes it."""
    return (
        job.seq,
        job.job_id,
        job.owner,
        int(job.kind),
        int(job.state),
        job.revision,
        job.cancel_requested,
        _failure_text(job.failure),
        job.idempotency_key or None,
        job.request_hash,
        job.request_id,
        msgspec.json.encode(job.inputs).decode(),
        job.keep_ms,
        job.created_ms,
        job.started_ms,
        job.ended_ms,
        job.expires_ms,
        job.expired,
        spec,
    )


def job_of(row: sqlite3.Row, steps: Iterable[Step]) -> Job:
    """A row read back, with the steps that belong to it."""
    return Job(
        job_id=row["job_id"],
        seq=row["seq"],
        owner=row["owner"],
        kind=JobKind(row["kind"]),
        steps=tuple(steps),
        created_ms=row["created_ms"],
        keep_ms=row["keep_ms"],
        request_hash=bytes(row["request_hash"]),
        idempotency_key=row["idempotency_key"] or "",
        request_id=row["request_id"],
        inputs=msgspec.json.decode(row["inputs"], type=tuple[Input, ...]),
        state=JobState(row["state"]),
        revision=row["revision"],
        cancel_requested=bool(row["cancel_requested"]),
        failure=_failure(row["failure"]),
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        expires_ms=row["expires_ms"],
        expired=bool(row["expired"]),
    )


def step_row(job_id: str, position: int, step: Step) -> tuple[object, ...]:
    """As `PUT_STEP` takes it."""
    return (
        job_id,
        position,
        int(step.kind),
        step.model,
        step.index,
        int(step.state),
        step.progress,
        step.attempts,
        step.misses,
        step.breakdowns,
        _failure_text(step.failure),
        step.started_ms,
        step.ended_ms,
    )


def step_of(row: sqlite3.Row, outcomes: Iterable[Outcome]) -> Step:
    """A row read back, with the outcomes that belong to it."""
    return Step(
        kind=StepKind(row["kind"]),
        model=row["model"],
        index=row["idx"],
        state=StepState(row["state"]),
        progress=row["progress"],
        attempts=row["attempts"],
        misses=row["misses"],
        breakdowns=row["breakdowns"],
        failure=_failure(row["failure"]),
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        outcomes=tuple(outcomes),
    )


def outcome_row(job_id: str, position: int, made: Outcome) -> tuple[object, ...]:
    """As `PUT_OUTCOME` takes it."""
    return (
        job_id,
        position,
        made.name,
        int(made.role),
        made.index,
        made.kept,
        made.mime_type,
        made.size_bytes,
        made.sha256,
        made.width_px,
        made.height_px,
        None if made.seed is None else str(made.seed),
    )


def outcome_of(row: sqlite3.Row) -> Outcome:
    """A row read back."""
    return Outcome(
        name=row["name"],
        role=Role(row["role"]),
        index=row["idx"],
        kept=bool(row["kept"]),
        mime_type=row["mime_type"],
        size_bytes=row["size_bytes"],
        sha256=bytes(row["sha256"]),
        width_px=row["width_px"],
        height_px=row["height_px"],
        seed=None if row["seed"] is None else int(row["seed"]),
    )


def _failure_text(failure: Failure | None) -> str | None:
    return None if failure is None else msgspec.json.encode(failure).decode()


def _failure(text: str | None) -> Failure | None:
    return None if text is None else msgspec.json.decode(text, type=Failure)
