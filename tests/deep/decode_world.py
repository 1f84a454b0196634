"""A real engine, and somebody who meddles with its steps: what a history of decoding happens in.

Between two steps requests are cancelled; within one the native decode is aborted, after a few of
its passes or before the first; now and then one fails. `Quiet` says what an engine may hold when
nobody wants anything of it.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import llama_cpp as native

from chassis.errors import Fault, Reason
from services.llm import engine_llama
from services.llm.engine import EngineSpec, Occupancy
from services.llm.engine_llama import LlamaEngine
from services.llm.llama_context import KvCacheFull
from services.llm.llama_sampler import Sampler
from tests.engine_kit import loaded

POLLS = 70
"""How often a pass over the device asks whether to abort, about."""


@dataclass
class Samplers:
    """Counts those that are open, in place of the real class."""

    open: int = 0

    def make(self, *args: Any, **named: Any) -> Sampler:
        self.open += 1
        sampler = Sampler(*args, **named)
        close = sampler.close

        def closed() -> None:
            self.open -= sampler._handle is not None
            close()

        sampler.close = closed  # type: ignore[method-assign]
        return sampler


@dataclass
class World:
    """The engine of one history."""

    spec: EngineSpec
    chance: random.Random
    patch: Any
    failures: bool
    engine: LlamaEngine = field(init=False)
    samplers: Samplers = field(default_factory=Samplers)
    steps: int = 0
    failed_steps: int = 0
    aborted_steps: int = 0
    most_full_in_a_row: int = 0
    """Steps for which there was no room."""
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    """Of requests that may be cancelled."""

    def open(self) -> None:
        self.patch.setattr(engine_llama, "Sampler", self.samplers.make)
        self.engine = loaded(self.spec)
        self._loop = asyncio.get_running_loop()
        self._waits: list[tuple[int, asyncio.Event]] = []
        context: Any = self.engine._context
        self._decode, self._flag = context.decode, context._flag
        context.decode = self._meddled
        self._polls_left = self._full_in_a_row = 0
        self._poll = native.ggml_abort_callback(self._polled)
        native.llama_set_abort_callback(context.handle, self._poll, None)

    async def pass_steps(self, count: int, tasks: "list[asyncio.Task[None]]") -> None:
        """Until the engine has done that many more, or `tasks` want no more of it."""
        passed = asyncio.Event()
        self._waits.append((self.steps + count, passed))
        waiting = asyncio.ensure_future(passed.wait())
        try:
            while not waiting.done() and (live := [t for t in tasks if not t.done()]):
                await asyncio.wait((waiting, *live), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def _tick(self) -> None:
        for step, passed in self._waits:
            if step <= self.steps:
                passed.set()
        self._waits = [wait for wait in self._waits if not wait[1].is_set()]

    def _meddled(self) -> None:
        """The decode thread's next step."""
        self.steps += 1
        self._loop.call_soon_threadsafe(self._tick)
        dice = self.chance.random()
        if dice < 0.02:
            live = [task for task in self.tasks if not task.done()]
            if live:
                self._loop.call_soon_threadsafe(self.chance.choice(live).cancel)
        elif dice < (0.3 if self._passes() > 1 else 0.04):
            self._polls_left = self.chance.randint(1, POLLS * self._passes())
        elif dice < 0.045 and self.failures:
            self.failed_steps += 1
            raise Fault(Reason.ENGINE_CRASHED, "Meddled with.")
        try:
            self._decode()
        except KvCacheFull:
            self._full_in_a_row += 1
            self.most_full_in_a_row = max(self.most_full_in_a_row, self._full_in_a_row)
            raise
        self._full_in_a_row = 0

    def _passes(self) -> int:
        """Over the device, of the next step."""
        rows = self.engine._context.rows  # type: ignore[union-attr]
        return -(-rows // min(self.spec.ubatch_tokens, self.spec.batch_tokens))

    def _polled(self, _data: Any) -> bool:
        if self._polls_left:
            self._polls_left -= 1
            if not self._polls_left:
                self.aborted_steps += 1
                return True
        return bool(self._flag[0] != b"\0")


def quiet(world: World, broken: Callable[[str], Exception]) -> None:
    """Nobody wants anything of the engine: what it holds now is idle prefixes, within bounds."""
    engine: Any = world.engine
    cache, prefixes = engine._loop._cache, engine._loop._cache._prefixes
    room = cache._room
    held = {i: engine._context.held_tokens(i) for i in range(room.sequences)}
    idle = {prefixes._kept[key].sequence for key in prefixes.idle}
    ledger = {i: mine.tokens for i, mine in cache._cells._sequences.items()}
    rules = {
        "nobody runs, waits or is parked": engine.occupancy() == Occupancy(0, 0, 0),
        "who finds no room leaves some": world.most_full_in_a_row <= room.sequences,
        "every sampler is closed": world.samplers.open == 0,
        "the draft model has read nothing": not engine._draft or not engine._draft.held_tokens,
        "no memory is reserved": not cache._reserved and prefixes._reserved_bytes == 0,
        "every prefix is idle or parked": len(prefixes._kept) == len(idle) + len(prefixes.parked),
        "only idle prefixes hold cells": {i for i, tokens in held.items() if tokens} == idle,
        "the ledger knows what they hold": {i: held[i] for i in idle} == ledger,
        "who is not idle is free": sorted(cache._free) == sorted(set(held) - idle),
        "idle sequences keep their bound": len(idle) <= room.idle_sequences,
        "idle cells keep their bound": cache.used_cells <= room.idle_cells,
        "tombstones stand beside idle prefixes only": bool(idle) or not cache._order.tombstones,
        "the grave is empty, or there are idle prefixes": bool(idle)
        or not (room.ordered and engine._context.held_tokens(room.sequences)),
        "parked prefixes are there": set(prefixes.parked) == set(cache._parked),
        "parked bytes keep their bound": (
            sum(map(len, cache._parked.values())) <= prefixes.parked_bytes <= room.parked_bytes
        ),
        "the trees hold what is kept": (
            sum(map(len, prefixes._trees.values())) == len(prefixes._kept)
        ),
    }
    for rule, kept in rules.items():
        if not kept:
            raise broken(rule)
