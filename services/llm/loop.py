"""The decode loop: one thread that owns the context, and the requests that join and leave it.

    submit ──► waiting (bounded, FIFO) ──► a sequence ──► steps ──► finish, fault or cancel
                    parked ◄──────────────────┘│ each step:
                                               │  1. drop the cancelled, let in who has room
                                               │  2. plan (core/plan.py), fill the batch, decode
                                               │  3. choose tokens where a row wants one
                                               └  4. hand the chunks to the event loops, a call each

The lock is held to change who waits, runs or is parked, never during a native call that takes its
time: event loops wait for it. A decode itself is a native call that
ends when it ends, so a cancel during one that holds prompt tokens sets the abort flag; the step is
rolled back and done again without the cancelled one. Each cancel can cost the others at most the
one step it aborts. Steps of single tokens are short and run to their end.

A full KV cache is no error: what nobody holds is freed first, then idle prefixes leave it, then the
least urgent and youngest job is parked, and comes back where it was when there is room; until then
it goes before all who wait and matter no more than it does. What a step does with the context is in
`step.py`; scheduling by priority, text and templates stay out.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chassis.errors import Fault, Reason
from services.llm.core.pace import Pace
from services.llm.core.plan import Demand, plan_step
from services.llm.engine import Holdings, Occupancy
from services.llm.job import Job, guess_each
from services.llm.kv_cache import KvCache
from services.llm.llama_api import Vocabulary
from services.llm.llama_context import Context, DecodeAborted, KvCacheFull
from services.llm.step import Outcome, Part, Step
from services.llm.stream import Delivery, Event, deliver
from services.llm.values import Chunk

Guess = Callable[[Sequence[Job]], None]
"""Sets the `draft` of each job, given all that run: before every step, and when nobody does."""

_CANCELLED = Fault(Reason.CANCELLED, "The request was cancelled.")


@dataclass(frozen=True, slots=True)
class LoopBounds:
    """How much at once."""

    places: int
    """Requests that decode side by side."""
    running: int
    """Jobs, which are their choices."""
    chunk_tokens: int
    waiting: int
    buffer_tokens: int


class DecodeLoop:
    """Runs jobs on `context`. `start` once, `close` once; the context is its own in between."""

    def __init__(
        self,
        context: Context,
        vocabulary: Vocabulary,
        cache: KvCache,
        bounds: LoopBounds,
        guess: Guess = guess_each,
    ) -> None:
        self._guess = guess
        self._context, self._cache, self._bounds = context, cache, bounds
        self._step = Step(context, vocabulary, cache)
        self._pace = Pace(bounds.chunk_tokens)
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._parked: list[Job] = []
        self._running: dict[Job, None] = {}  # in order of arrival
        self._crowded = False
        """Somebody had to go, and no step has been done since: nobody comes in before one is."""
        self._arrivals = 0
        self._abortable: frozenset[Job] = frozenset()
        self._closing: Fault | None = None
        self._out: dict[asyncio.AbstractEventLoop, list[Delivery]] = {}
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)

    @property
    def step(self) -> Step:
        """What its steps have cost so far."""
        return self._step

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue `job`. Raises Fault QUEUE_FULL, or why the loop has ended."""
        with self._changed:
            if (over := self._closing) is not None:
                raise Fault(over.reason, over.message)
            if self._requests() >= self._bounds.waiting + self._bounds.places:
                raise Fault(
                    Reason.QUEUE_FULL,
                    f"The engine has {self._bounds.waiting} requests waiting for a place; "
                    "try again shortly.",
                    retry_after_s=1.0,
                )
            self._arrive(job)
            self._waiting.append(job)
            self._changed.notify()

    def _requests(self) -> int:
        """Those that run, are parked or wait, however many choices they have."""
        jobs = (*self._running, *self._parked, *self._waiting)
        return len({job.stream for job in jobs if not job.cancelled})

    def _arrive(self, job: Job) -> None:
        self._arrivals += 1
        job.arrival = self._arrivals

    def cancel(self, job: Job) -> bool:
        """Nobody reads `job` any more. True: it holds a place, until its stream is over."""
        with self._changed:
            job.cancelled = True
            with contextlib.suppress(ValueError):
                self._waiting.remove(job)
                self._follow(job)
                return False
            if job not in self._running and job not in self._parked:
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
            running = {job.stream for job in self._running}
            parked = {job.stream for job in self._parked} - running
            waiting = {job.stream for job in self._waiting} - running - parked
            return Occupancy(len(running), len(waiting), len(parked))

    def holdings(self) -> Holdings:
        """What the KV cache holds; a glance, for the thread may be changing it."""
        return self._cache.holdings()

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
                self._perform(plan)
                self._flush()
        except Exception as error:  # whatever it is, the readers must hear of it
            with self._changed:
                self._closing = Fault(Reason.ENGINE_CRASHED, f"The decode loop failed: {error!r}.")
        self._end_all()
        self._flush()

    def _next_plan(self) -> list[Part]:
        """Wait for work and plan a step; empty: the loop is closing."""
        while True:
            self._drop_cancelled()
            self._flush()
            self._let_in()
            plan = self._planned()
            with self._changed:
                if self._closing is not None:
                    return []
                if not (self._running or self._parked or self._waiting):
                    self._changed.wait()
                elif plan and not any(job.cancelled for job in self._running):
                    self._begin(plan)
                    return plan

    def _begin(self, plan: list[Part]) -> None:
        """From now on a cancel can abort the step, if it is worth it."""
        # Prefill stands last in a plan: a last slice of decode rows means a step of decodes.
        last = plan[-1]
        long = last.tokens > last.outputs
        self._abortable = frozenset(part.job for part in plan) if long else frozenset()
        self._context.abort(False)

    def _planned(self) -> list[Part]:
        jobs = list(self._running)
        self._guess(jobs)
        demands = [Demand(i, job.answer.owed_tokens, len(job.draft)) for i, job in enumerate(jobs)]
        slices = plan_step(
            demands,
            batch_tokens=self._context.batch_tokens,
            chunk_tokens=self._pace.chunk_tokens,
        )
        return [Part(jobs[i], tokens, outputs) for i, tokens, outputs in slices]

    def _drop_cancelled(self) -> None:
        for job in [job for job in (*self._running, *self._parked) if job.cancelled]:
            self._end(job, _CANCELLED)

    def _let_in(self) -> None:
        while (job := self._next_in()) is not None:
            self._cache.enter(job)  # without the lock: to restore a state takes its time

    def _next_in(self) -> Job | None:
        """Who has a place from now on; None: nobody waits, or the first in line has to."""
        with self._changed:
            job = self._first_in_line()
            if job is None or (self._crowded and self._running) or not self._may_run(job):
                return None
            line = self._parked if job in self._parked else self._waiting
            line.remove(job)
            self._running[job] = None
            return job

    def _first_in_line(self) -> Job | None:
        """The parked one that matters most, or the first who waits and matters more than it."""
        if not self._parked:
            return self._waiting[0] if self._waiting else None
        parked = min(self._parked, key=lambda job: (-job.tier, job.arrival))
        return next((job for job in self._waiting if job.tier > parked.tier), parked)

    def _may_run(self, job: Job) -> bool:
        if len(self._running) >= self._bounds.running:
            return False
        requests = {running.stream for running in self._running}
        if job.stream not in requests and len(requests) >= self._bounds.places:
            return False
        return self._cache.has_room(job, list(self._running))

    def _perform(self, plan: list[Part]) -> None:
        try:
            outcomes = self._step.perform(plan)
        except DecodeAborted:
            for part in plan:
                self._cache.undo(part.job)
        except KvCacheFull:
            self._make_room(plan)
        except Fault as fault:
            for part in plan:
                self._end(part.job, fault)
        else:
            self._crowded = False
            self._keep_pace(plan)
            for outcome in outcomes:
                self._tell(outcome)

    def _keep_pace(self, plan: list[Part]) -> None:
        newcomers = [part.tokens for part in plan if part.tokens > part.outputs]
        if 0 < len(newcomers) < len(plan):
            self._pace.observe(sum(newcomers), self._step.last_s)

    def _make_room(self, plan: list[Part]) -> None:
        """What the cache can spare goes first, then who matters least: lowest tier, youngest."""
        if self._cache.make_room():
            return
        if len(self._running) < 2:
            full = Fault(
                Reason.NO_HEADROOM,
                "The model's KV cache is too small for this request; send a shorter one.",
            )
            self._end(plan[0].job, full)
            return
        victim = min(self._running, key=lambda job: (job.tier, -job.arrival))
        self._cache.park(victim)
        self._crowded = True
        with self._changed:
            del self._running[victim]
            self._parked.append(victim)

    def _tell(self, outcome: Outcome) -> None:
        job = outcome.job
        if job.answer.cached >= job.answer.prompt_tokens:
            self._follow(job)
        for chunk in outcome.chunks:
            if chunk.finish is not None:
                self._leave(job, keep=True)
            if not self._send(job, chunk):
                return
        if outcome.fault is not None:
            self._end(job, outcome.fault)

    def _follow(self, job: Job) -> None:
        """Its prompt is in the cache, or never will be: the other choices need not wait for it."""
        if not job.followers:
            return
        with self._changed:
            followers = [follower for follower in job.followers if not follower.cancelled]
            job.followers = []
            for follower in followers:
                self._arrive(follower)
            self._waiting.extendleft(reversed(followers))

    def _leave(self, job: Job, *, keep: bool) -> None:
        self._cache.leave(job, keep=keep)
        job.close()
        self._follow(job)
        with self._changed:
            self._running.pop(job, None)
            with contextlib.suppress(ValueError):
                self._parked.remove(job)

    def _send(self, job: Job, chunk: Chunk) -> bool:
        """False: that was too much for its reader, and the job has ended."""
        backlog = job.stream.sending(chunk.tokens)
        self._put(job, chunk)
        if backlog <= self._bounds.buffer_tokens or chunk.finish is not None:
            return True
        slow = Fault(
            Reason.SLOW_READER,
            f"The answer was read too slowly: more than {self._bounds.buffer_tokens} "
            "tokens piled up; read faster or ask for fewer.",
        )
        self._end(job, slow)
        return False

    def _end(self, job: Job, fault: Fault) -> None:
        self._leave(job, keep=fault is _CANCELLED)
        self._put(job, fault)

    def _put(self, job: Job, event: Event) -> None:
        self._out.setdefault(job.stream.loop, []).append((job.stream, job.answer.choice, event))

    def _end_all(self) -> None:
        """Tell everybody. The cache, which may be what has failed, is left as it is."""
        with self._changed:
            assert self._closing is not None  # noqa: S101  the only way out of the loop
            for job in (*self._running, *self._parked, *self._waiting):
                job.close()
                self._put(job, self._closing)
            self._running.clear()
            self._parked.clear()
            self._waiting.clear()

    def _flush(self) -> None:
        out, self._out = self._out, {}
        for loop, items in out.items():
            try:
                loop.call_soon_threadsafe(deliver, items)
            except RuntimeError:  # that event loop is closed, and its readers with it
                for job in (*self._running, *self._parked):
                    job.cancelled = job.cancelled or job.stream.loop is loop
