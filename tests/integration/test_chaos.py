"""Scheduler, broker and model service are killed at random, under load of every kind.

Every request ends exactly once and runs at most once; afterwards nothing is held but what loaded
models need, and nothing at all once they are unloaded. `COHABIT_DEEP=1` makes the storm a minute.
"""

import asyncio
import logging
import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.integration.chaos_house import (
    LEASE_TTL_S,
    SERVICES,
    ChaosHouse,
    at_rest,
    empty,
    in_chaos,
    until_nothing_is_wrong,
)
from tests.integration.chaos_killer import Killer
from tests.integration.chaos_load import Crowd, Diary, crowd
from tests.integration.chaos_wishes import calm_wishes
from tests.integration.house import until

DEEP = bool(os.environ.get("COHABIT_DEEP"))
SEED = int(os.environ.get("COHABIT_SEED", "3"))
STORM_S = 60.0 if DEEP else 12.0
OVER_HTTP, BY_GRPC = 30, 10
QUIET_S = 10.0 + LEASE_TTL_S + 5.0
"""The launcher waits up to 10 s before it starts a service anew; a lease on its way to somebody who
was killed ends with its TTL."""
CALM_S = 3.0
MOST_GROWTH_MIB, MOST_MORE_FILES = 24, 8

_log = logging.getLogger(__name__)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[ChaosHouse]:
    with in_chaos(tmp_path) as house:
        yield house


@pytest.mark.timeout(STORM_S + 150)
async def test_a_storm_of_kills(house: ChaosHouse) -> None:
    async with crowd(house, SEED) as clients:
        killer = Killer(house, random.Random(SEED), lambda: len(clients.complete))
        async with clients.at_work(OVER_HTTP, BY_GRPC):
            await until(partial(_has_served, clients, 20), 15, "the house serves")
            await killer.rage(STORM_S)
        _log.info("killed %s, away %s: %s", killer.killed, killer.away, clients.summary())
        assert not clients.wrong(), "\n".join(clients.wrong())
        await until_nothing_is_wrong(house, at_rest, QUIET_S)
        _check_diary(Diary.of(house.log), clients)
        await _serves_every_model(clients)
    await _stays_as_large_as_it_is(house)
    await house.unload_all()
    await until_nothing_is_wrong(house, empty, 5)
    assert house.card.out_of_memory_count == 0
    assert Diary.of(house.log).bugs() == []


async def _has_served(clients: Crowd, many: int) -> bool:
    return len(clients.complete) >= many


def _check_diary(diary: Diary, clients: Crowd) -> None:
    """Nothing has run twice; what was answered was answered once, after it had run."""
    taken_in, answered = diary.taken_in(), diary.answered()
    assert {name: where for name, where in taken_in.items() if len(where) > 1} == {}
    assert {name: count for name, count in answered.items() if count > 1} == {}
    complete = clients.complete
    # The log of a service that is killed lacks its last lines.
    assert len([name for name in complete if name in taken_in]) > 0.9 * len(complete)
    assert len(complete) > 30, clients.summary()


async def _serves_every_model(clients: Crowd) -> None:
    for wish in calm_wishes():
        (end,) = await asyncio.wait_for(clients.ask(wish), 15)
        assert end.how == "complete", str(end)


async def _stays_as_large_as_it_is(house: ChaosHouse) -> None:
    """Another load, without kills, leaves every service with the memory and files that it had."""
    async with crowd(house, SEED + 1, "w") as warming, warming.at_work(OVER_HTTP, BY_GRPC):
        await asyncio.sleep(CALM_S)  # the length of a load, not a wait for anything
    await until_nothing_is_wrong(house, at_rest, QUIET_S)
    before = _sizes(house)
    async with crowd(house, SEED + 2, "f") as clients, clients.at_work(OVER_HTTP, BY_GRPC):
        await asyncio.sleep(CALM_S)
    assert not clients.wrong(), "\n".join(clients.wrong())
    await until_nothing_is_wrong(house, at_rest, QUIET_S)
    after = _sizes(house)
    grown = {
        module: (after[module][0] - mib, after[module][1] - files)
        for module, (mib, files) in before.items()
    }
    _log.info("%s, then %s, grown %s", warming.summary(), clients.summary(), grown)
    for module, (mib, files) in grown.items():
        assert mib < MOST_GROWTH_MIB, (module, grown)
        assert files < MOST_MORE_FILES, (module, grown)


def _sizes(house: ChaosHouse) -> dict[str, tuple[int, int]]:
    """Memory in MiB and open files of every service."""

    def of(process: psutil.Process) -> tuple[int, int]:
        return process.memory_info().rss >> 20, process.num_fds()

    return {module: of(house.process(module)) for module in (*SERVICES, "edge")}
