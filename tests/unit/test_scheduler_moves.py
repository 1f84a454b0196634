"""Loads and unloads as the scheduler performs them: in what order a service and a broker hear."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from services.scheduler.clients import Broker, Worker
from services.scheduler.core.values import CancelLoad, StartLoad
from services.scheduler.moves import Failure, Moves

START = StartLoad("m", "lease-1")


class Lender(Broker):
    """A broker that writes down what it hears."""

    def __init__(self, heard: list[str], away: int) -> None:
        self.heard = heard
        self.away = away
        """For so many calls."""

    async def release(self, lease_id: str) -> None:
        if self.away:
            self.away -= 1
            raise Fault(Reason.SERVICE_UNAVAILABLE, "away")
        self.heard.append(f"release {lease_id}")


class Service(Worker):
    """A model service that writes down what it hears."""

    def __init__(self, heard: list[str], fails_with: Fault | None) -> None:
        self.heard = heard
        self.fails_with = fails_with
        self.loading = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def load(self, key: str, lease_id: str) -> None:
        self.heard.append("load")
        self.loading.set()
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.heard.append("load cancelled")
            raise
        if self.fails_with is not None:
            raise self.fails_with

    async def unload(self, key: str, drain_ms: int, *, force: bool) -> None:
        self.heard.append("unload")


class World:
    """Both, and what moves models there."""

    def __init__(self, fails_with: Fault | None = None, away: int = 0) -> None:
        self.heard: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.service = Service(self.heard, fails_with)
        self.moves = Moves(Lender(self.heard, away), lambda _: self.service, self._spawn)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))


async def test_a_load_that_is_given_up_ends_before_it_is_unloaded() -> None:
    world = World()
    moves = world.moves
    load = asyncio.create_task(moves.load(START))
    await world.service.loading.wait()
    await moves.cancel(CancelLoad("m", "why"))
    assert world.heard == ["load", "load cancelled", "unload", "release lease-1"]
    assert await load is None  # nobody's fault


async def test_a_load_that_its_service_has_not_heard_of_is_given_up_too() -> None:
    world = World()
    moves = world.moves
    load = asyncio.create_task(moves.load(START))
    cancel = asyncio.create_task(moves.cancel(CancelLoad("m", "why")))
    await asyncio.gather(load, cancel)
    assert world.heard == ["unload", "release lease-1"]


async def test_a_load_that_has_just_ended_is_unloaded() -> None:
    world = World()
    world.service.goes_on.set()
    moves = world.moves
    assert await moves.load(START) is None
    await moves.cancel(CancelLoad("m", "why"))
    assert world.heard == ["load", "unload"]


@pytest.mark.parametrize(
    ("reason", "failure"),
    [
        (Reason.MODEL_FAILED, Failure("no", 3000)),
        (Reason.SERVICE_UNAVAILABLE, None),
        (Reason.LEASE_REQUIRED, None),
    ],
)
async def test_a_load_that_fails_returns_its_lease(reason: Reason, failure: Failure | None) -> None:
    world = World(fails_with=Fault(reason, "no", retry_after_s=3.0))
    world.service.goes_on.set()
    assert await world.moves.load(START) == failure
    assert world.heard == ["load", "release lease-1"]


async def test_a_lease_is_returned_when_the_broker_is_back() -> None:
    world = World(away=3)
    async with asyncio.timeout(5):
        await world.moves.return_lease("lease-1")
        await asyncio.gather(*world.tasks)
    assert world.heard == ["release lease-1"]
