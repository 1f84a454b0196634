"""The sequences of the KV cache: who holds one, which prefixes stay behind, what is parked.

The decisions are `core/prefixes.py` and `core/cells.py`; this performs them on the native context.
All of it is for the thread that decodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.llm.cell_order import CellOrder
from services.llm.core.cells import Cells
from services.llm.core.prefixes import Effect, Forget, Park, Prefixes
from services.llm.engine import MOST_COPIED_MIB, Holdings
from services.llm.job import Job
from services.llm.llama_context import Context

MARGIN_CELLS = 64
"""Room for its next tokens that a sequence wants when it comes, so that it does not go at once."""


@dataclass(frozen=True, slots=True)
class CacheRoom:
    """How much there is."""

    cells: int
    sequences: int
    idle_sequences: int
    """Of these, what prefixes may keep that nobody runs on."""
    idle_cells: int
    parked_bytes: int
    shares_prefixes: bool
    ordered: bool
    """The context has one sequence more, and cells keep the order of their tokens."""

    @property
    def running(self) -> int:
        """Jobs that may be in it at once."""
        return self.sequences - self.idle_sequences


class KvCache:
    """Sequences and what is in them."""

    def __init__(self, context: Context, room: CacheRoom) -> None:
        self._context, self._room = context, room
        self._cells = Cells()
        self._order = CellOrder(
            context,
            self._cells,
            grave=room.sequences if room.ordered else -1,
            copy_bytes=MOST_COPIED_MIB << 20,
        )
        self._free = list(range(room.sequences))
        self._parked: dict[int, memoryview] = {}
        self._prefixes = Prefixes(
            idle_tokens=room.idle_cells,
            idle_sequences=room.idle_sequences,
            parked_bytes=room.parked_bytes,
            freed_cells=self._cells.freed,
        )
        self._reserved: dict[Job, int] = {}

    @property
    def used_cells(self) -> int:
        """In use, by running sequences and idle prefixes."""
        return self._cells.used

    def holdings(self) -> Holdings:
        """What there is in it. The one method that other threads may call: what it reads of the
        prefixes are copies, each made in one step."""
        idle, parked = self._prefixes.idle, self._prefixes.parked
        sequences = self._prefixes.sequences(idle)
        return Holdings(
            cells=self._room.cells,
            used_cells=self._cells.used,
            idle_cells=self._cells.held(sequences),
            sequences=self._room.sequences,
            free_sequences=len(self._free),
            idle_prefixes=len(idle),
            parked_prefixes=len(parked),
            parked_bytes=self._prefixes.host_bytes,
        )

    def has_room(self, job: Job, others: Sequence[Job]) -> bool:
        """It can come, without somebody of `others`, who run, having to go for it."""
        if not others:
            return True
        held = self._cells.held(other.sequence for other in others)
        owed = sum(other.answer.owed_tokens for other in others)  # prompts on their way into it
        wanted = len(job.answer.tokens) + MARGIN_CELLS
        return held + owed + wanted <= self._room.cells

    def enter(self, job: Job) -> None:
        """Give the job a sequence, with as much of its text in it as is known."""
        if not self._free:
            self._perform(self._prefixes.reclaim())
        job.sequence = self._free.pop()
        if job in self._reserved:
            self._resume(job)
        if job.answer.cached == 0:
            self._reuse(job)
        # Known before its first cells are counted: others may leave some in the same step.
        self._cells.set(job.sequence, job.answer.cached)

    def _reuse(self, job: Job) -> None:
        if not self._room.shares_prefixes:
            return
        found = self._prefixes.find(job.scope, job.answer.tokens)
        if found is None:
            return
        tokens = found.tokens
        if found.sequence >= 0:
            if not self._context.reusable(found.sequence, tokens):
                return
            self._context.copy(found.sequence, job.sequence, 0, tokens)
            self._cells.copy(found.sequence, job.sequence, tokens)
        elif self._restored(job.sequence, self._parked[found.key], tokens):
            self._know(job, tokens)  # who comes next shares these cells instead of copies
        else:
            return
        job.answer.cached = tokens
        if job.chooser is None:  # else its prompt was computed before, and is counted so
            job.answer.reused_tokens = tokens

    def _restored(self, sequence: int, state: memoryview, tokens: int) -> bool:
        """Put a parked prefix into an empty sequence, cut to `tokens`."""
        while not self._context.restore(sequence, state):
            if not self.make_room():
                return False
        usable = self._context.reusable(sequence, tokens)
        if not (usable and self._context.cut(sequence, tokens)):
            self._context.cut(sequence, 0)
            return False
        self._cells.set(sequence, tokens)
        return True

    def grown(self, job: Job) -> None:
        """The job's `cached` tokens are in the cache."""
        self._cells.set(job.sequence, job.answer.cached)
        if job.answer.cached >= job.answer.prompt_tokens > job.known_tokens:
            self._know(job, job.answer.prompt_tokens)

    def _know(self, job: Job, count: int) -> None:
        if not self._room.shares_prefixes:
            return
        tokens = job.answer.tokens[:count]
        if job.prefix_key < 0:
            job.prefix_key = self._prefixes.running(job.scope, tokens, job.sequence)
        else:
            self._prefixes.extended(job.prefix_key, tokens)
        job.known_tokens = count

    def _hide(self, job: Job) -> int:
        """Others find it no more; the key it was known by, or -1."""
        key, job.prefix_key, job.known_tokens = job.prefix_key, -1, 0
        return key

    def cut_back(self, job: Job) -> None:
        """Forget what is behind the job's `cached` tokens. Its model has no recurrent state."""
        self._order.cut(job.sequence, job.answer.cached)

    def undo(self, job: Job) -> None:
        """A step of the job was broken off: forget what it may have written.

        Cells are written at their own places, behind all others: to free them leaves no gap. A
        recurrent state is written over, by some layers and not by others, whatever the native side
        says of its positions: begin again.
        """
        if not self._room.shares_prefixes:
            job.answer.cached = 0
        self._context.cut(job.sequence, job.answer.cached)
        self._cells.set(job.sequence, job.answer.cached)

    def leave(self, job: Job, *, keep: bool) -> None:
        """The job is over; with `keep`, what it has in the cache may be of use to others."""
        self._release(job)
        if job.sequence < 0:
            return
        whole = job.known_tokens >= job.answer.prompt_tokens
        sequence, job.sequence = job.sequence, -1
        key = self._hide(job)
        if key < 0:
            self._clear(sequence)
        elif not (keep and whole):  # a part of its prompt is a part of the prefix it came from
            self._prefixes.gone(key)
            self._clear(sequence)
        else:
            self._perform(self._prefixes.ended(key, job.answer.tokens[: job.answer.cached]))
        self._perform(self._prefixes.fit_cache())

    def park(self, job: Job) -> None:
        """Take the job out of the cache; `enter` brings it back to where it is."""
        if (key := self._hide(job)) >= 0:
            self._prefixes.gone(key)
        size = self._context.saved_bytes(job.sequence)
        fits, effects = self._prefixes.reserve(size)
        self._perform(effects)
        job.parked_state = self._context.save(job.sequence) if fits else None
        self._reserved[job] = size if fits else 0
        self._clear(job.sequence)
        job.sequence = -1
        self._perform(self._prefixes.fit_cache())

    def _resume(self, job: Job) -> None:
        restored = False
        if state := job.parked_state:
            restored = self._context.restore(job.sequence, state)
            while not restored and self.make_room():
                restored = self._context.restore(job.sequence, state)
        self._release(job)
        if not restored:
            job.answer.cached = 0
        self.grown(job)

    def _release(self, job: Job) -> None:
        self._prefixes.release(self._reserved.pop(job, 0))
        job.parked_state = None

    def make_room(self) -> bool:
        """The cache is full: free tombstones, or have an idle prefix leave it; False: there is
        neither.
        """
        return self._order.compact() or self._perform(self._prefixes.reclaim())

    def _perform(self, effects: Sequence[Effect]) -> bool:
        """True: there was something to do."""
        for effect in effects:
            if isinstance(effect, Park):
                self._park_prefix(effect)
            else:
                self._forget(effect)
        return bool(effects)

    def _park_prefix(self, effect: Park) -> None:
        size = self._context.saved_bytes(effect.sequence)
        state = self._context.save(effect.sequence) if size <= self._room.parked_bytes else None
        if not state:
            self._forget(self._prefixes.forget(effect.key))
            return
        self._parked[effect.key] = state
        self._clear(effect.sequence)
        self._perform(self._prefixes.parked_now(effect.key, size))

    def _forget(self, effect: Forget) -> None:
        self._parked.pop(effect.key, None)
        if effect.sequence >= 0:
            self._clear(effect.sequence)

    def _clear(self, sequence: int) -> None:
        self._order.clear(sequence)
        self._free.append(sequence)
