"""What a model service is wired on: the device is asked for, files are looked at, all is closed."""

from collections.abc import AsyncIterator, Hashable
from pathlib import Path

import pytest

from chassis import config
from chassis.main import Context
from hosting.broadcast import Fallen
from hosting.config import HostingSection
from hosting.host import ModelHost
from hosting.premises import Premises
from hosting.values import Kind, ModelSpec
from tests.hosting_world import broker_process, until


class Noted:
    """A source that is described by the device, and by a file that may come later."""

    def __init__(self, file: Path, premises: Premises) -> None:
        self._file, self._premises = file, premises

    def stamp(self) -> Hashable:
        return self._file.exists()

    def describe(self) -> ModelSpec:
        device = self._premises.present().name
        problem = "" if self._file.exists() else "There is no file."
        return ModelSpec("noted", Kind.MATTE, "matte", 1, owner=device, problem=problem)


@pytest.fixture
async def premises(tmp_path: Path) -> AsyncIterator[Premises]:
    async with broker_process(tmp_path):
        document = config.load(tmp_path / "cohabit.yaml")
        yield Premises.of("matte", Context.of("matte", HostingSection, document))


async def hosted(premises: Premises, file: Path) -> ModelHost:
    return await premises.host([Noted(file, premises)])


async def test_models_are_described_for_the_device_of_the_house(
    premises: Premises, tmp_path: Path
) -> None:
    host = await hosted(premises, tmp_path / "later")
    server = premises.server((), host, ())
    assert host.get("noted").spec.owner == "sim0"  # as the broker calls a simulated card
    await server.stop()


async def test_a_file_that_comes_later_is_seen(premises: Premises, tmp_path: Path) -> None:
    file = tmp_path / "later"
    host = await hosted(premises, file)
    server = premises.server((), host, ())
    assert host.get("noted").spec.problem
    file.touch()
    await until(lambda: not host.get("noted").spec.problem, "a look at the file")
    await server.stop()


async def test_who_watches_the_models_is_let_go(premises: Premises, tmp_path: Path) -> None:
    host = await hosted(premises, tmp_path / "later")
    server = premises.server((), host, ())
    with host.events.subscribe() as watcher:
        await server.stop()
        with pytest.raises(Fallen):
            await watcher.next(0.01)


async def test_all_is_closed_the_models_first_and_the_leases_last(
    premises: Premises, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    async def first() -> None:
        closed.append("first")

    async def second() -> None:
        closed.append("second")

    async def models(host: ModelHost) -> None:
        closed.append("models")

    leases = premises.leases.close

    async def last() -> None:
        await leases()
        closed.append("leases")

    monkeypatch.setattr(ModelHost, "close", models)
    monkeypatch.setattr(premises.leases, "close", last)
    server = premises.server((), await hosted(premises, tmp_path / "f"), (first, second))
    await server.stop()
    assert closed == ["models", "second", "first", "leases"]
    assert all(task.cancelled() or task.cancelling() or task.done() for task in premises._tasks)
