"""A model that is not there: memory taken up and given back, and time let pass. No wire here.

As with a real engine, a card that is full in the middle of a load or of a request is the end of
the process: the driver of a card has no way of saying no that native code survives.
"""

import asyncio
import itertools
import math
import os
import resource
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import NoReturn

from chassis import log
from chassis.errors import Fault, Reason
from chassis.simulated_card import CardError, OutOfMemory, SimulatedCard
from services.simulated.profile import Profile
from services.simulated.words import Plan

_TICK_S = 0.01
"""Words that come faster than this travel together."""
_TELL_EVERY_S = 0.1
"""How often progress is told."""
_MOST_STEPS = 50
_RESIDENT = "resident"


@dataclass(frozen=True, slots=True)
class Said:
    """Words that became due."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Tokens of the prompt that are read."""

    tokens: int


class SimulatedEngine:
    """One instance of a model of any kind, on a card."""

    def __init__(self, profile: Profile, card: SimulatedCard) -> None:
        self.profile = profile
        self._card = card
        self._runs = itertools.count(1)
        self._resident_mib = 0
        self._transient: dict[str, int] = {}

    @property
    def usage_mib(self) -> tuple[int, int]:
        """What it holds on the card, and what of that is for running requests."""
        transient_mib = sum(self._transient.values())
        return self._resident_mib + transient_mib, transient_mib

    async def load(self, progress: Callable[[float], None]) -> None:
        """Take up the resident memory, evenly over the load time. Raises Fault MODEL_FAILED."""
        steps = min(_MOST_STEPS, max(1, round(self.profile.load_s / _TELL_EVERY_S)))
        loop = asyncio.get_running_loop()
        began = loop.time()
        for step in range(1, steps + 1):
            await asyncio.sleep(began + self.profile.load_s * step / steps - loop.time())
            mib = self.profile.resident_mib * step // steps
            self._hold(_RESIDENT, mib)
            self._resident_mib = mib
            progress(step / steps)

    async def unload(self) -> None:
        """Hold the memory for as long as an unload takes; the end of the process gives it back."""
        await asyncio.sleep(self.profile.unload_s)

    async def run(self, work_s: float, transient_mib: int) -> AsyncGenerator[float, None]:
        """Hold `transient_mib` for `work_s` seconds; yields how much of the work is done."""
        name = f"run-{next(self._runs)}"
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._hold(name, transient_mib)
        self._transient[name] = transient_mib
        try:
            while (passed_s := loop.time() - began) < work_s:
                yield passed_s / work_s
                await asyncio.sleep(min(_TELL_EVERY_S, began + work_s - loop.time()))
            yield 1.0
        finally:
            del self._transient[name]
            self._free(name)

    async def generate(
        self, prompt_tokens: int, plan: Plan
    ) -> AsyncGenerator[Prefilled | Said, None]:
        """Read the prompt, then say the words, each at the pace of the profile."""
        loop = asyncio.get_running_loop()
        began, prefill_s = loop.time(), prompt_tokens / self.profile.prefill_tokens_per_s
        while (passed_s := loop.time() - began) < prefill_s:
            yield Prefilled(int(prompt_tokens * passed_s / prefill_s))
            await asyncio.sleep(min(_TELL_EVERY_S, began + prefill_s - loop.time()))
        began, said = began + prefill_s, 0
        while said < len(plan.words):
            next_at = began + (said + 1) / self.profile.tokens_per_s
            await asyncio.sleep(max(_TICK_S, next_at - loop.time()))
            due = math.floor((loop.time() - began) * self.profile.tokens_per_s)
            words = plan.words[said : max(said + 1, due)]
            said += len(words)
            yield Said("".join(words), len(words))

    def _hold(self, name: str, mib: int) -> None:
        try:
            self._card.allocate(name, mib)
        except OutOfMemory as error:
            _abort("out of memory", str(error))
        except CardError as error:
            raise Fault(Reason.MODEL_FAILED, str(error)) from None

    def _free(self, name: str) -> None:
        try:
            self._card.free(name)
        except CardError as error:
            _abort("memory cannot be given back", str(error))  # the end of the process does it


def _abort(what: str, why: str) -> NoReturn:
    """End the way native code ends for which a card has no memory."""
    log.get().critical(what, why=why)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # there is nothing to learn from a dump
    os.abort()
