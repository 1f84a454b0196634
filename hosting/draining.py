"""Seeing an instance off: its engine takes nothing new, finishes or is made to, and is stopped."""

import asyncio
from contextlib import suppress

from hosting.core import State, Step
from hosting.hosted import Hosted
from hosting.instance import EngineHandle
from hosting.landlord import Landlord
from hosting.refusals import model_busy
from hosting.tenancy import Tenancy

_DEAD_S = 2.0
"""How soon the exit of an engine is known that has not answered because it is dead."""


async def see_off(
    landlord: Landlord, hosted: Hosted, tenancy: Tenancy, within_s: float, *, force: bool
) -> None:
    """Unload the instance; returns when nothing is left of it.

    Raises Fault MODEL_BUSY when its work takes longer than `within_s`; with `force` that is ended
    with MODEL_EVICTED. Cancelled, or too late, it leaves the instance as it was.
    """
    match tenancy.state:
        case State.LOADING:
            tenancy.dismiss()
        case State.READY | State.DRAINING if not tenancy.leaving:
            await _drain(landlord, hosted, tenancy, within_s, force=force)
    await tenancy.over.wait()


async def _drain(
    landlord: Landlord, hosted: Hosted, tenancy: Tenancy, within_s: float, *, force: bool
) -> None:
    engine = tenancy.engine
    assert engine is not None  # noqa: S101 - it serves, and is not leaving
    if tenancy.state is State.READY:
        landlord.step(hosted, tenancy, Step.DRAIN)
    tenancy.drainers += 1
    try:
        answer = await engine.drain(within_s, force=force)
        if answer is None and await _died(engine):
            return
        running = answer.running if answer is not None else None
        if answer is not None:
            landlord.take_figures(tenancy, answer.figures)
        if running and not force:
            raise model_busy(hosted.spec.key, running)
        if running is None and not force:
            raise model_busy(hosted.spec.key, len(tenancy.permits))
        tenancy.dismiss()
    finally:
        tenancy.drainers -= 1
        if not (tenancy.drainers or tenancy.leaving) and tenancy.state is State.DRAINING:
            landlord.step(hosted, tenancy, Step.RESUME)


async def _died(engine: EngineHandle) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(_DEAD_S):
            await engine.over.wait()
    return engine.over.is_set()
