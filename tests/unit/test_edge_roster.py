"""Which models stand behind a name, and how seldom the scheduler is asked for it."""

import asyncio
from collections.abc import Sequence

import pytest

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2
from edge.keys.caller import OPEN
from edge.roster import Roster, by_name

TWINS = [models_pb2.Model(key=key, family="f") for key in ("a", "b")]


class Scheduler:
    def __init__(self) -> None:
        self.asked = 0
        self.models: Sequence[models_pb2.Model] = TWINS
        self.silent = False

    async def list(self) -> Sequence[models_pb2.Model]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.silent:
            raise Fault(Reason.SERVICE_UNAVAILABLE, "It does not answer.")
        return self.models


def test_a_key_goes_before_a_family_of_its_name() -> None:
    named = by_name([*TWINS, models_pb2.Model(key="f")])
    assert [model.key for model in named["f"]] == ["f"]
    assert [model.key for model in named["a"]] == ["a"]
    assert [model.key for model in by_name(TWINS)["f"]] == ["a", "b"]


async def test_it_asks_once_for_all_who_wait() -> None:
    scheduler = Scheduler()
    roster = Roster(scheduler.list)
    seen = await asyncio.gather(*(roster.behind(name, OPEN) for name in ("f", "a", "x", "y")))
    assert [len(models) for models in seen] == [2, 1, 0, 0]
    assert scheduler.asked == 1


async def test_unknown_names_do_not_have_it_ask_again_at_once() -> None:
    scheduler = Scheduler()
    patient, hasty = Roster(scheduler.list), Roster(scheduler.list, fresh_s=0)
    for _ in range(3):
        assert await patient.behind("new", OPEN) == ()
    assert scheduler.asked == 1
    assert await hasty.behind("new", OPEN) == ()
    scheduler.models = [*TWINS, models_pb2.Model(key="new")]
    assert len(await hasty.behind("new", OPEN)) == 1
    assert len(await hasty.behind("f", OPEN)) == 2
    assert scheduler.asked == 3


@pytest.mark.parametrize("fresh_s", [0.0, 60.0])
async def test_what_was_known_outlives_a_scheduler_that_is_away(fresh_s: float) -> None:
    scheduler = Scheduler()
    roster = Roster(scheduler.list, fresh_s)
    assert await roster.behind("f", OPEN)
    scheduler.silent = True
    assert await roster.behind("x", OPEN) == ()
    assert len(await roster.behind("f", OPEN)) == 2
