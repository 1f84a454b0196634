"""The stages of a request, bounded, so that requests overlap: while the network works for one, the
pictures of another are decoded, solved and encoded.

    decode → network → solve → encode

The network takes one picture at a time, on a thread of its own; the other stages have as many
threads as there are places. What arrives beyond the places waits for one. A cancel is over when the
stage that runs is (`threads`): nothing of the request goes on after that.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from imaging.values import Bounds, Pixels
from services.matte import picturing
from services.matte.networks.network import Matted, Network
from services.matte.picturing import Source
from services.matte.solving import Solved
from services.matte.threads import on_thread
from services.matte.values import Estimated, Estimation, Removal, Removed, Times

R = TypeVar("R")


class Stage(Enum):
    """What is done to a request, in this order."""

    DECODE = "decode"
    NETWORK = "network"
    SOLVE = "solve"
    ENCODE = "encode"


Observe = Callable[[int, Stage, bool], None]
"""Told on the stage's thread: the request's number, the stage, and whether it begins or ends."""


@dataclass(slots=True)
class _Run:
    """One request under way."""

    number: int
    arrived: float
    times: Times = field(default_factory=Times)

    def spent(self, stage: Stage, ms: float) -> None:
        """Add to the stage's time."""
        name = f"{stage.value}_ms"
        setattr(self.times, name, getattr(self.times, name) + ms)


class Pipeline:
    """Runs removals and estimations on one network."""

    def __init__(
        self,
        network: Network,
        places: int,
        bounds: Bounds,
        observe: Observe = lambda _number, _stage, _begins: None,
    ) -> None:
        self._network, self._bounds, self._observe = network, bounds, observe
        self._places = asyncio.Semaphore(places)
        self._many = ThreadPoolExecutor(places, "stage")
        self._one = ThreadPoolExecutor(1, "network")
        self._number = 0
        self.running = 0
        """Requests that have arrived and are not over."""

    async def remove(self, removal: Removal) -> tuple[Removed, Times]:
        """Cut the subject out. Raises Fault."""
        async with self._place() as run:
            source = await self._stage(
                run, Stage.DECODE, lambda: picturing.opened(removal, self._bounds)
            )
            alpha, colors = await self._matted(run, removal, source)
            removed = await self._stage(
                run, Stage.ENCODE, lambda: picturing.answered(removal, source, alpha, colors)
            )
        return removed, run.times

    async def estimate(self, asked: Estimation) -> tuple[Estimated, Times]:
        """Solve for both colours, given a matte. Raises Fault."""
        async with self._place() as run:
            picture, alpha = await self._stage(
                run, Stage.DECODE, lambda: picturing.opened_with_matte(asked, self._bounds)
            )
            colors = await self._solved(run, picture.rgb, alpha)
            estimated = await self._stage(
                run, Stage.ENCODE, lambda: picturing.estimated(asked, alpha, colors)
            )
        return estimated, run.times

    def close(self) -> None:
        """Take nothing any more; what runs on threads ends by itself."""
        self._one.shutdown(wait=False, cancel_futures=True)
        self._many.shutdown(wait=False, cancel_futures=True)

    async def _matted(
        self, run: _Run, removal: Removal, source: Source
    ) -> tuple[Pixels, Solved | None]:
        wants_colors = picturing.wants_colors(removal, source)
        own = source.picture.alpha
        if own is not None and not picturing.wants_matte(removal, source):
            return own, await self._solved(run, source.flat, own) if wants_colors else None
        # Colours that the card solves for belong to the network's matte, so not where another
        # alpha comes on top.
        there = wants_colors and own is None and self._network.solves

        def matte() -> Matted:
            matted = self._network.matte(source.flat, colors=there)
            return replace(matted, alpha=picturing.with_own_alpha(matted.alpha, source.picture))

        matted = await self._stage(run, Stage.NETWORK, matte)
        _split(run.times, matted)
        if wants_colors and matted.solved is None:
            return matted.alpha, await self._solved(run, source.flat, matted.alpha)
        return matted.alpha, matted.solved

    async def _solved(self, run: _Run, rgb: Pixels, alpha: Pixels) -> Solved:
        solve = self._network.solve if self._network.solves else picturing.solved
        return await self._stage(run, Stage.SOLVE, lambda: solve(rgb, alpha))

    async def _stage(self, run: _Run, stage: Stage, work: Callable[[], R]) -> R:
        def timed() -> R:
            began = time.perf_counter()
            if stage is Stage.DECODE:
                run.times.engine_wait_ms = 1000 * (began - run.arrived)
            self._observe(run.number, stage, True)
            try:
                return work()
            finally:
                run.spent(stage, 1000 * (time.perf_counter() - began))
                self._observe(run.number, stage, False)

        return await on_thread(self._pool(stage), timed)

    def _pool(self, stage: Stage) -> Executor:
        on_card = stage is Stage.SOLVE and self._network.solves
        return self._one if stage is Stage.NETWORK or on_card else self._many

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[_Run]:
        self._number += 1
        run = _Run(self._number, time.perf_counter())
        self.running += 1
        try:
            async with self._places:
                yield run
        finally:
            self.running -= 1
            run.times.total_ms = 1000 * (time.perf_counter() - run.arrived)


def _split(times: Times, matted: Matted) -> None:
    """Of the network's stage, what was solving."""
    times.solve_ms += matted.solve_ms
    times.network_ms -= matted.solve_ms
