"""The thread that owns a context of vectors, and the requests whose texts share its calls.

    submit ──► queue (bounded) ──► calls (packing.py) ──► all texts done, fault or cancel

Between calls requests come and go. A call ends when it ends, so a cancel of a request that is in
it sets the abort flag, and what the others had in it is computed again: each cancel can cost them
at most the one call it aborts. Tokens and what vectors mean stay out.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from chassis.errors import Fault, Reason
from services.llm.llama_vectors import CallAborted
from services.llm.packing import Pending, next_call
from services.llm.similarity import Floats


class Computes(Protocol):
    """What the loop runs: `llama_vectors.VectorContext`."""

    @property
    def width(self) -> int:
        """Floats a text."""

    def compute(self, texts: Sequence[Sequence[int]]) -> Floats:
        """[texts, width]. Raises CallAborted, Fault."""

    def abort(self, wanted: bool) -> None:
        """Abort the call that runs. Any thread."""


class Job:
    """One request's texts, as tokens. Made in the event loop that waits for it."""

    def __init__(self, texts: Sequence[Sequence[int]], width: int) -> None:
        self.texts = texts
        self.rows = np.zeros((len(texts), width), np.float32)
        self.fault: Fault | None = None
        self.over = asyncio.Event()
        """`rows` are complete, or `fault` is set; and it holds no place."""
        self.cancelled = False
        self.left = len(texts)
        self.loop = asyncio.get_running_loop()


Call = list[tuple[Pending[Job], int]]


class VectorLoop:
    """Runs jobs on `context`. `start` once, `close` once; the context is its own in between."""

    def __init__(
        self, context: Computes, *, batch_tokens: int, most_texts: int, waiting: int
    ) -> None:
        self._context = context
        self._batch_tokens, self._most_texts = batch_tokens, most_texts
        self._waiting = waiting
        self._changed = threading.Condition()
        self._jobs: set[Job] = set()
        self._queue: deque[Pending[Job]] = deque()
        self._again: Call = []
        """Of a call that was aborted: what goes into the next one."""
        self._running: frozenset[Job] = frozenset()
        self._closing: Fault | None = None
        self._thread = threading.Thread(target=self._run, name="vectors", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue `job`. Raises Fault QUEUE_FULL, or why the loop has ended."""
        with self._changed:
            if (over := self._closing) is not None:
                raise Fault(over.reason, over.message)
            if len(self._jobs) >= self._waiting:
                raise Fault(
                    Reason.QUEUE_FULL,
                    f"The engine works on {self._waiting} requests already; try again shortly.",
                    retry_after_s=1.0,
                )
            self._jobs.add(job)
            self._queue.append(Pending(job, [len(text) for text in job.texts]))
            self._changed.notify()

    def cancel(self, job: Job) -> bool:
        """Nobody waits for `job` any more. True: it is in a call, until it is over."""
        with self._changed:
            job.cancelled = True
            if job in self._running:
                self._context.abort(True)
                return True
            self._jobs.discard(job)
            return False

    def give_up(self) -> None:
        """The thread does not come back from a native call: take no more jobs."""
        with self._changed:
            self._closing = self._closing or _stuck()

    @property
    def healthy(self) -> bool:
        """The thread takes jobs."""
        return self._closing is None

    @property
    def inside(self) -> int:
        """Requests that wait or run."""
        with self._changed:
            return len(self._jobs)

    def close(self, timeout_s: float) -> bool:
        """End every job and the thread; False: the thread is stuck in a native call."""
        with self._changed:
            self._closing = self._closing or Fault(
                Reason.SERVICE_UNAVAILABLE, "The engine is stopping; try again shortly."
            )
            self._context.abort(True)
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # Everything below is the thread's.

    def _run(self) -> None:
        try:
            while call := self._next_call():
                self._compute(call)
        except BaseException:
            self._closing = self._closing or Fault(
                Reason.ENGINE_CRASHED, "The engine failed and will be restarted; try again shortly."
            )
            raise
        finally:
            self._end_all()

    def _next_call(self) -> Call:
        """Empty: it is to end."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._closing or self._again or self._queue)
                if self._closing:
                    return []
                again, self._again = self._again, []
                call = [part for part in again if not part[0].key.cancelled]
                self._queue = deque(one for one in self._queue if not one.key.cancelled)
                call = call or next_call(self._queue, self._batch_tokens, self._most_texts)
                self._running = frozenset(pending.key for pending, _ in call)
                self._context.abort(False)
                if call:
                    return call

    def _compute(self, call: Call) -> None:
        fault: Fault | None = None
        rows = np.zeros((0, 0), np.float32)
        try:
            rows = self._context.compute([pending.key.texts[at] for pending, at in call])
        except CallAborted:
            self._again = call
        except Fault as error:
            fault = error
        for (pending, at), row in zip(call, rows, strict=False):
            pending.key.rows[at] = row
            pending.key.left -= 1
        with self._changed:
            ended, self._running = self._running, frozenset()
        for job in ended:
            if fault is not None or job.cancelled or job.left == 0:
                self._end(job, fault)

    def _end(self, job: Job, fault: Fault | None) -> None:
        job.fault = fault
        job.cancelled = job.cancelled or fault is not None  # what is queued of it is dropped
        with self._changed:
            self._jobs.discard(job)
        with contextlib.suppress(RuntimeError):  # that event loop is closed, and its readers gone
            job.loop.call_soon_threadsafe(job.over.set)

    def _end_all(self) -> None:
        with self._changed:
            jobs = list(self._jobs)
        for job in jobs:
            self._end(job, self._closing)


def _stuck() -> Fault:
    return Fault(
        Reason.ENGINE_CRASHED, "The engine is stuck and will be restarted; try again shortly."
    )
