"""What a model service is wired on: the device is asked for, files are looked at, all is closed."""

from collections.abc import AsyncIterator, Hashable, Mapping
from pathlib import Path

import pytest

from chassis import config
from chassis.config import Section
from chassis.following import Following
from chassis.main import Context
from hosting.broadcast import Fallen
from hosting.config import HostingSection
from hosting.host import ModelHost
from hosting.listing import Listing
from hosting.premises import Premises
from hosting.values import Kind, ModelSpec
from tests.hosting_world import broker_process, until


class Network(Section):
    """One entry of the list."""

    lane: str = "matte"


class Networks(HostingSection):
    """A section that is followed."""

    models: Mapping[str, Network] = {}
    default_model: str = ""
    quality: int = 1


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
        await until((tmp_path / "run" / "broker.sock").exists, "the broker listens")
        document = config.load(tmp_path / "cohabit.yaml")
        yield Premises.of("matte", Context.of("matte", Networks, document))


async def hosted(premises: Premises, file: Path) -> ModelHost:
    listing = Listing("matte", Networks(), lambda _: {"noted": Noted(file, premises)})
    following = Following("matte", Networks, config.load(file.parent / "cohabit.yaml"))
    return await premises.host(listing, following)


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


class Written:
    """A source that is described by its entry alone."""

    def __init__(self, key: str, lane: str) -> None:
        self._key, self._lane = key, lane

    def stamp(self) -> Hashable:
        return None

    def describe(self) -> ModelSpec:
        return ModelSpec(self._key, Kind.MATTE, self._lane, 1)


async def test_models_come_go_and_change_as_the_configuration_lists_them(
    premises: Premises, tmp_path: Path
) -> None:
    path = tmp_path / "cohabit.yaml"
    shared = path.read_text()

    def write(matte: str) -> None:
        path.write_text(f"{shared}matte: {matte}\n")

    write("{models: {a: {}, b: {}}}")
    context = Context.of("matte", Networks, config.load(path))
    listing = Listing(
        "matte",
        context.own,
        lambda own: {key: Written(key, model.lane) for key, model in own.models.items()},
    )
    host = await premises.host(listing, context.following)
    server = premises.server((), host, ())

    async def take() -> None:
        await context.following.look()
        await context.following.look()

    with host.events.subscribe() as watcher:
        write("{default_model: c, quality: 9, models: {b: {lane: slow}, c: {}}}")
        await take()
        told = [event for _ in range(5) if (event := await watcher.next(1)) is not None]
    assert [one.model.key for one in told if one.model.removed] == ["a"]
    assert [one.removed_key for one in told if one.removed_key] == ["a"]
    assert sorted(one.model.key for one in told if one.model.key) == ["a", "b", "c"]
    assert {model.key: model.lane for model in host.messages()} == {"b": "slow", "c": "matte"}
    assert listing.section.default_model == "c"
    assert listing.section.quality == 1  # that is for the next start, and everybody is told
    assert list(told[-1].configuration.restart_keys) == ["matte.quality"]

    write("{models: [}")
    await take()
    assert "expected YAML" in host.configuration.problem
    assert len(host.messages()) == 2
    await server.stop()
