"""The bench of admissions sees what it is there to see."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bench.scheduler.crowd import Crowd, attend
from bench.scheduler.loads import LOADS
from bench.scheduler.report import Limit, Row, Section, as_json, limits_of
from bench.scheduler.rivals import ConditionDoor
from bench.scheduler.script import Case
from bench.scheduler.through_shell import through_shell
from services.scheduler.core.values import Tier


class OpenDoor:
    """Everybody is let in at once."""

    @asynccontextmanager
    async def admitted(self, tier: Tier, model: str, key: str) -> AsyncIterator[None]:
        yield


async def test_a_crowd_that_exceeds_the_budget_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="of 4 permits were held at once"):
        await attend(Crowd(callers=16, rounds=2, slots=4), OpenDoor())


async def test_one_condition_keeps_the_budget_and_uses_it() -> None:
    finished = await attend(Crowd(callers=16, rounds=5, slots=4), ConditionDoor(4))
    assert (finished.admissions, finished.most_held) == (80, 4)


async def test_the_scheduler_lets_a_crowd_of_all_tiers_through_within_the_budget() -> None:
    async with through_shell(4) as door:
        finished = await attend(Crowd(callers=16, rounds=5, slots=4), door)
    assert (finished.admissions, finished.most_held) == (80, 4)


@pytest.mark.parametrize("name", LOADS)
def test_every_load_does_its_pairs(name: str) -> None:
    LOADS[name](Case(waiting=50, keys=3)).pairs(500)


def section(ratio: float, value: float = 7.0) -> Section:
    limits = [Limit("pairs/s", value, 5.0, at_least=True)]
    rows = [Row("mine", {"pairs/s": value}, ratio), Row("its", {"pairs/s": 90.0})]
    return Section("core", "core", "heap", rows, limits)


@pytest.mark.parametrize(("ratio", "passes"), [(1.2, True), (1.4, False)])
def test_a_ratio_far_worse_than_the_baseline_misses_a_limit(ratio: float, passes: bool) -> None:
    before = as_json({}, [section(1.0)], [])
    now = [section(ratio)]
    assert as_json({}, now, limits_of(now, before))["passes"] is passes


def test_without_a_baseline_only_the_sections_own_limits_count() -> None:
    assert [limit.kept for limit in limits_of([section(9.0)], {})] == [True]
    assert [limit.kept for limit in limits_of([section(9.0, value=4.0)], {})] == [False]
