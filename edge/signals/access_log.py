"""The lines of requests, to standard error or to files of bounded size.

A file is written by a thread of its own, so that no request ever waits for a disk; the lines that
wait for it are bounded, and those that find no room are counted (`cohabit_access_log_dropped_…`).
"""

import logging
import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import QueueListener, RotatingFileHandler
from pathlib import Path
from typing import Any

import msgspec

from chassis import log
from chassis.config import ConfigError
from edge.signals.failures import now_utc
from edge.signals.metrics import DROPPED_LINES

KEPT_FILES = 4
_MOST_WAITING = 10_000
_LAST_LINES_S = 2.0
_encode = msgspec.json.Encoder().encode

Write = Callable[[dict[str, Any]], None]
"""Takes what is told of one request."""


def to_stderr(told: dict[str, Any]) -> None:
    """Among the other lines of the process, whose keeper bounds them."""
    log.get().info("request", **told)


def for_debugging(told: dict[str, Any]) -> None:
    """As `to_stderr`, for whoever wants to see all."""
    log.get().debug("request", **told)


@contextmanager
def to_files(path: Path, most_bytes: int, waiting: int = _MOST_WAITING) -> Iterator[Write]:
    """To `path` and three older ones (`path.1`, …), each of at most `most_bytes`.

    Raises ConfigError when the file cannot be opened.
    """
    lines: queue.Queue[logging.LogRecord] = queue.Queue(waiting)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files = _Files(path, maxBytes=most_bytes, backupCount=KEPT_FILES - 1, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"edge.access_log_file: {path} cannot be written: {error.strerror}; "
            "name a file that the edge may write"
        ) from None
    listener = _Listener(lines, files)
    listener.start()

    def write(told: dict[str, Any]) -> None:
        try:
            lines.put_nowait(logging.makeLogRecord({"msg": _line(told)}))
        except queue.Full:
            DROPPED_LINES.inc()

    try:
        yield write
    finally:
        listener.stop()
        files.close()


class _Listener(QueueListener):
    queue: "queue.Queue[logging.LogRecord | None]"

    def enqueue_sentinel(self) -> None:
        """It ends behind the lines that wait. Where they leave no room for that, the oldest goes:
        without a sign of the end its thread would wait for more for ever, and we for it.
        """
        try:
            self.queue.put(None, timeout=_LAST_LINES_S)
        except queue.Full:
            with suppress(queue.Empty):
                self.queue.get_nowait()
                DROPPED_LINES.inc()
            self.queue.put_nowait(None)


class _Files(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - logging's own
        """A disk that is full costs lines, and nothing else."""
        DROPPED_LINES.inc()


def _line(told: dict[str, Any]) -> str:
    head = {"timestamp": now_utc(), "request_id": log.request_id.get()}
    if trace_id := log.trace_id.get():
        head["trace_id"] = trace_id
    return _encode(head | told).decode()
