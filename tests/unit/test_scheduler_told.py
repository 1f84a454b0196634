"""What model services have told: a model that two have, one that moves from one to the other."""

from collections.abc import Iterable

import pytest

from cohabit.models.v1 import models_pb2
from services.scheduler.clients import Changed, Configured, Everything, Removed, Report, Worker
from services.scheduler.told import Told


@pytest.fixture
async def told() -> Told:
    return Told([Worker(name, f"unix:/nowhere/{name}") for name in ("one", "two")])


def model(key: str, owner: str = "") -> models_pb2.Model:
    return models_pb2.Model(key=key, owner=owner)


def everything(*keys: str) -> Everything:
    return Everything(tuple(map(model, keys)), {})


def say(told: Told, worker: str, report: Report) -> bool:
    """Whether it counts."""
    own = told.own(worker, report)
    if own is not None:
        told.take(worker, own)
    return own is not None


def shown(heirs: Iterable[tuple[str, models_pb2.Model]]) -> list[tuple[str, str, str]]:
    return [(worker, one.key, one.owner) for worker, one in heirs]


async def test_a_model_is_of_the_service_that_had_it_first(told: Told) -> None:
    say(told, "one", everything("a", "b"))
    say(told, "two", everything("b", "c"))
    assert told.hosts() == {"a": "one", "b": "one", "c": "two"}
    assert not say(told, "two", Changed(model("b")))
    assert told.heirs() == []


async def test_a_model_that_moves_is_known_where_it_went_by_its_latest_report(told: Told) -> None:
    say(told, "one", everything("a"))
    say(told, "two", everything())
    assert not say(told, "two", Changed(model("a", "first")))
    assert not say(told, "two", Changed(model("a", "latest")))
    say(told, "one", Removed("a"))
    assert shown(told.heirs()) == [("two", "a", "latest")]
    assert told.heirs() == []  # told once


async def test_one_that_has_left_the_second_service_too_has_no_heir(told: Told) -> None:
    say(told, "one", everything("a"))
    say(told, "two", everything("a"))
    assert not say(told, "two", Removed("a"))
    say(told, "one", everything())
    assert told.heirs() == []
    assert told.hosts() == {}


async def test_how_services_stand_to_the_configuration_is_kept(told: Told) -> None:
    refused = models_pb2.Configuration(problem="It is wrong.")
    say(told, "one", Everything((), {}, refused))
    assert told.configurations["one"].problem == "It is wrong."
    say(told, "one", Configured(models_pb2.Configuration()))
    assert told.configurations["one"].problem == ""
