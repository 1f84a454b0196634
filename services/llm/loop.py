"""The decode loop: one thread that owns the context, and the requests that join and leave it.

    submit ──► waiting (bounded, FIFO) ──► a place ──► steps ──► finish, fault or cancel
                                             │ each step:
                                             │  1. under the lock: drop the cancelled, fill places
                                             │  2. plan (core.py), fill the batch, decode
                                             │  3. sample one token a row that wants one
                                             └  4. hand all chunks to the event loops, one call each

Between steps the lock is free and requests come and go. A decode itself is a native call that
ends when it ends, so a cancel during one that holds prompt tokens sets the abort flag; the step is
rolled back and done again without the cancelled one. Each cancel can cost the others at most the
one step it aborts. Steps of single tokens are short and run to their end.

Scheduling by priority, text and templates stay out.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque

from chassis.errors import Fault, Reason
from services.llm.answer import Answer
from services.llm.core import Demand, Slice, plan_step
from services.llm.engine import Occupancy
from services.llm.llama_api import Context, DecodeAborted, Vocabulary
from services.llm.llama_sampler import Sampler
from services.llm.stream import AnswerStream, Event, deliver
from services.llm.values import Chunk

_CANCELLED = Fault(Reason.CANCELLED, "The request was cancelled.")


class Job:
    """An answer in the loop: who reads it, and what it holds there."""

    __slots__ = ("answer", "cancelled", "place", "sampler", "stream")

    def __init__(self, answer: Answer, stream: AnswerStream) -> None:
        self.answer, self.stream = answer, stream
        self.cancelled = False
        self.place = -1
        self.sampler: Sampler | None = None


class DecodeLoop:
    """Runs jobs on `context`. `start` once, `close` once; the context is its own in between."""

    def __init__(
        self,
        context: Context,
        vocabulary: Vocabulary,
        *,
        places: int,
        chunk_tokens: int,
        waiting: int,
        buffer_tokens: int,
    ) -> None:
        self._context, self._vocabulary = context, vocabulary
        self._chunk_tokens, self._max_waiting = chunk_tokens, waiting
        self._buffer_tokens = buffer_tokens
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: dict[int, Job] = {}  # by place, in order of arrival
        self._free = list(range(places))
        self._abortable: frozenset[Job] = frozenset()
        self._closing: Fault | None = None
        self._out: dict[asyncio.AbstractEventLoop, list[tuple[AnswerStream, Event]]] = {}
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue `job`. Raises Fault QUEUE_FULL, or why the loop has ended."""
        with self._changed:
            if (over := self._closing) is not None:
                raise Fault(over.reason, over.message)
            leaving = sum(running.cancelled for running in self._running.values())
            if len(self._waiting) >= self._max_waiting + len(self._free) + leaving:
                raise Fault(
                    Reason.QUEUE_FULL,
                    f"The engine has {self._max_waiting} requests waiting for a place; "
                    "try again shortly.",
                    retry_after_s=1.0,
                )
            self._waiting.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> bool:
        """Nobody reads `job` any more. True: it holds a place, until its stream is over."""
        with self._changed:
            job.cancelled = True
            if job.place < 0:
                with contextlib.suppress(ValueError):
                    self._waiting.remove(job)
                return False
            if self._running.get(job.place) is not job:
                return False
            if job in self._abortable:
                self._context.abort(True)
            self._changed.notify()
            return True

    def give_up(self) -> None:
        """The thread does not come back from a native call: take no more jobs, and end all."""
        with self._changed:
            self._closing = self._closing or Fault(
                Reason.ENGINE_CRASHED, "The model is stuck in a step; try again shortly."
            )
            self._changed.notify()

    @property
    def healthy(self) -> bool:
        """The thread takes jobs."""
        return self._closing is None

    def occupancy(self) -> Occupancy:
        """Requests that hold a place, and that wait for one."""
        with self._changed:
            return Occupancy(len(self._running), len(self._waiting))

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

    def _run(self) -> None:
        try:
            while plan := self._next_plan():
                self._step(plan)
                self._flush()
        except Exception as error:  # whatever it is, the readers must hear of it
            with self._changed:
                self._closing = Fault(Reason.ENGINE_CRASHED, f"The decode loop failed: {error!r}.")
        self._end_all()
        self._flush()

    def _next_plan(self) -> list[tuple[Job, Slice]]:
        """Wait for work and plan a step; empty: the loop is closing."""
        with self._changed:
            while True:
                self._drop_cancelled()
                self._flush()
                self._fill_places()
                if self._closing is not None:
                    return []
                if self._running:
                    break
                self._changed.wait()
            slices = plan_step(
                [Demand(place, job.answer.owed_tokens) for place, job in self._running.items()],
                batch_tokens=self._context.batch_tokens,
                chunk_tokens=self._chunk_tokens,
            )
            plan = [(self._running[part.key], part) for part in slices]
            # Prefill stands last in a plan: a last slice of one token means a step of decodes.
            long = slices[-1].tokens > 1
            self._abortable = frozenset(job for job, _ in plan) if long else frozenset()
            self._context.abort(False)
            return plan

    def _drop_cancelled(self) -> None:
        for job in [job for job in self._running.values() if job.cancelled]:
            self._end(job, _CANCELLED)

    def _fill_places(self) -> None:
        while self._free and self._waiting:
            job = self._waiting.popleft()
            job.place = self._free.pop()
            self._running[job.place] = job

    def _leave(self, job: Job) -> None:
        self._context.cut(job.place, 0)
        if job.sampler is not None:
            job.sampler.close()
            job.sampler = None
        with self._changed:
            del self._running[job.place]
            self._free.append(job.place)

    def _step(self, plan: list[tuple[Job, Slice]]) -> None:
        began_s = time.perf_counter()
        rows = self._fill_batch(plan, began_s)
        try:
            self._context.decode()
        except DecodeAborted:
            self._roll_back(plan)
            return
        except Fault as fault:
            for job, _ in plan:
                self._end(job, fault)
            return
        for (job, part), row in zip(plan, rows, strict=True):
            job.answer.cached += part.tokens
            if job.cancelled:
                continue
            if part.wants_logits:
                self._sample(job, row)
            else:
                self._send(job, job.answer.progress())

    def _fill_batch(self, plan: list[tuple[Job, Slice]], now_s: float) -> list[int]:
        context, rows = self._context, []
        context.clear_rows()
        for job, (place, count, wants_logits) in plan:
            answer = job.answer
            answer.start(now_s)
            at = answer.cached
            if count == 1 and wants_logits:
                rows.append(context.add_row(place, at, answer.tokens[at]))
            else:
                tokens = answer.tokens[at : at + count]
                rows.append(context.add_rows(place, at, tokens, wants_logits=wants_logits))
        return rows

    def _roll_back(self, plan: list[tuple[Job, Slice]]) -> None:
        for job, _ in plan:
            if not self._context.cut(job.place, job.answer.cached):
                # A recurrent state cannot be cut in the middle: begin again.
                self._context.cut(job.place, 0)
                job.answer.cached = 0

    def _sample(self, job: Job, row: int) -> None:
        answer = job.answer
        if job.sampler is None:
            job.sampler = Sampler(answer.params.sampling, self._vocabulary.size, answer.tokens)
        token = self._context.sample(job.sampler, row)
        data, is_end = self._vocabulary.piece(token)
        chunk = answer.take(token, data, is_end, time.perf_counter())
        if chunk is None:
            return
        if chunk.finish is not None:
            self._leave(job)
        self._send(job, chunk)

    def _send(self, job: Job, chunk: Chunk) -> None:
        backlog = job.stream.sending(chunk.tokens)
        self._out.setdefault(job.stream.loop, []).append((job.stream, chunk))
        if backlog > self._buffer_tokens and chunk.finish is None:
            self._end(
                job,
                Fault(
                    Reason.SLOW_READER,
                    f"The answer was read too slowly: more than {self._buffer_tokens} tokens "
                    "piled up; read faster or ask for fewer.",
                ),
            )

    def _end(self, job: Job, fault: Fault) -> None:
        self._leave(job)
        self._out.setdefault(job.stream.loop, []).append((job.stream, fault))

    def _end_all(self) -> None:
        with self._changed:
            assert self._closing is not None  # noqa: S101  the only way out of the loop
            for job in list(self._running.values()):
                self._end(job, self._closing)
            while self._waiting:
                stream = self._waiting.popleft().stream
                self._out.setdefault(stream.loop, []).append((stream, self._closing))

    def _flush(self) -> None:
        out, self._out = self._out, {}
        for loop, items in out.items():
            try:
                loop.call_soon_threadsafe(deliver, items)
            except RuntimeError:  # that event loop is closed, and its readers with it
                for job in list(self._running.values()):
                    job.cancelled = job.cancelled or job.stream.loop is loop
