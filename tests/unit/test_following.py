"""The configuration's files, looked at again: what is taken, refused, and left for a restart.

Looks are made by hand, so that nothing waits for a clock.
"""

import asyncio
import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from chassis.config import ConfigError, Document, Section, load
from chassis.following import Following


class Model(Section):
    size: int = 1


class Toys(Section):
    models: Mapping[str, Model] = {}
    quality: int = 1


START = "llm: {models: {a: {}}}\n"


class Taker:
    """A service that takes what it is given, or says why not."""

    def __init__(self, folder: Path, text: str = START) -> None:
        self.path = folder / "cohabit.yaml"
        if not self.path.exists():
            self.path.write_text(text)
        self.following = Following("llm", Toys, load(self.path))
        self.following.use(self.apply)
        self.following.told.append(lambda: self.told.append(self.following.problem))
        self.taken: list[list[str]] = []
        self.told: list[str] = []
        self.refusal = ""

    async def apply(self, own: Toys, document: Document) -> None:
        assert document.path == self.path
        if self.refusal:
            raise ConfigError(self.refusal)
        self.taken.append(sorted(own.models))

    async def look(self, times: int = 2) -> None:
        for _ in range(times):
            await self.following.look()


@pytest.fixture
def taker(tmp_path: Path) -> Taker:
    return Taker(tmp_path)


async def test_what_has_not_changed_is_not_read(
    taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taker.following, "_read", lambda: pytest.fail("it was read"))
    await taker.look(3)


async def test_a_change_is_taken_once_when_it_has_been_quiet(taker: Taker) -> None:
    taker.path.write_text("llm: {models: {a: {}, b: {}}}\n")
    await taker.look(1)
    assert taker.taken == []
    taker.path.write_text("llm: {models: {a: {}, b: {}, c: {}}}\n")  # it is still being written
    await taker.look(1)
    assert taker.taken == []
    await taker.look(3)
    assert taker.taken == [["a", "b", "c"]]
    assert taker.told == []


async def test_a_file_that_becomes_readable_is_taken_without_a_change(
    taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    taker.path.write_text("llm: {models: {b: {}}}\n")
    with monkeypatch.context() as unreadable, capture_logs() as lines:
        unreadable.setattr(Path, "read_text", refused)
        await taker.look(5)
    assert [line["event"] for line in lines] == ["configuration refused"]
    await taker.look(1)
    assert taker.taken == [["b"]]
    assert taker.told == [f"{taker.path}: Permission denied", ""]


async def test_a_file_that_is_renamed_into_its_place_is_seen(taker: Taker) -> None:
    """As editors do, here with the same size and the same time."""
    other = taker.path.with_name("new")
    other.write_text(START.replace("a", "z"))
    was = taker.path.stat()
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(taker.path)
    await taker.look()
    assert taker.taken == [["z"]]


async def test_a_folder_that_is_swapped_behind_a_link_is_seen(tmp_path: Path) -> None:
    """As Kubernetes does with a ConfigMap."""
    for name, text in (("one", START), ("two", START.replace("a", "z"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cohabit.yaml").write_text(text)
    data = tmp_path / "..data"
    data.symlink_to("one")
    (tmp_path / "cohabit.yaml").symlink_to("..data/cohabit.yaml")
    taker = Taker(tmp_path)
    await taker.look()
    assert taker.taken == []
    new = tmp_path / "..data_tmp"
    new.symlink_to("two")
    new.replace(data)
    await taker.look()
    assert taker.taken == [["z"]]


async def test_an_overlay_that_comes_and_goes_is_seen(taker: Taker) -> None:
    overlay = taker.path.with_name("cohabit.local.yaml")
    overlay.write_text("llm: {models: {b: {}}}\n")
    await taker.look()
    overlay.unlink()
    await taker.look()
    assert taker.taken == [["a", "b"], ["a"]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("llm: {models: [\n", "expected YAML"),
        ("llm: {models: {a: {size: big}}}\n", "cohabit.yaml:1: llm.models.a.size: expected"),
        ("lmm: {}\n", "lmm: unknown key"),
        ("", "it is empty"),
        (None, "no such file"),
    ],
)
async def test_what_cannot_be_used_is_refused_and_said_once(
    taker: Taker, text: str | None, why: str
) -> None:
    if text is None:
        taker.path.unlink()
    else:
        taker.path.write_text(text)
    await taker.look(5)
    assert taker.taken == []
    assert len(taker.told) == 1
    assert why in taker.following.problem
    taker.path.write_text(START)
    await taker.look(3)
    assert taker.following.problem == ""
    assert taker.told[1:] == [""]
    assert taker.taken == [["a"]]


async def test_what_the_service_itself_refuses_is_a_problem_too(taker: Taker) -> None:
    taker.refusal = "There is no such set."
    taker.path.write_text("llm: {models: {b: {}}}\n")
    await taker.look()
    assert taker.following.problem == "There is no such set."


async def test_a_change_that_breaks_the_service_is_a_problem_and_not_the_last_one(
    taker: Taker,
) -> None:
    outcomes: asyncio.Queue[str] = asyncio.Queue()

    async def apply(own: Toys, _document: Document) -> None:
        if "b" in own.models:
            raise ZeroDivisionError
        outcomes.put_nowait("taken")

    taker.following.use(apply)
    taker.following.told.append(lambda: outcomes.put_nowait(taker.following.problem))
    taker.path.write_text("llm: {models: {b: {}}}\n")
    looking = asyncio.create_task(taker.following.run(every_s=0.001))
    try:
        async with asyncio.timeout(5):
            assert "the log of the service says why" in await outcomes.get()
            taker.path.write_text("llm: {models: {c: {}}}\n")
            assert await outcomes.get() == "taken"
            assert await outcomes.get() == ""
    finally:
        looking.cancel()


async def test_a_file_that_changes_while_it_is_read_is_read_again(
    taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = taker.following._read

    def slowly() -> tuple[Document, Toys]:
        found = read()
        taker.path.write_text("llm: {models: {c: {}}}\n")
        return found

    taker.path.write_text("llm: {models: {b: {}}}\n")
    monkeypatch.setattr(taker.following, "_read", slowly)
    await taker.look()
    monkeypatch.setattr(taker.following, "_read", read)
    assert taker.taken == []
    await taker.look()
    assert taker.taken == [["c"]]


async def test_a_change_before_the_first_look_is_not_missed(taker: Taker) -> None:
    """The file may be written between its first reading and the start of the service."""
    document = load(taker.path)
    taker.path.write_text("llm: {models: {b: {}}}\n")
    taker.following = Following("llm", Toys, document)
    taker.following.use(taker.apply)
    await taker.look(3)
    assert taker.taken == [["b"]]


async def test_a_change_that_comes_while_the_service_is_built_is_kept_for_it(taker: Taker) -> None:
    taker.following = Following("llm", Toys, load(taker.path))
    taker.path.write_text("llm: {models: {b: {}}}\n")
    await taker.look(3)
    taker.following.use(taker.apply)
    await taker.look()
    assert taker.taken == [["b"]]


async def test_a_service_that_takes_nothing_in_place_still_says_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "cohabit.yaml"
    path.write_text("broker: {quality: 1}\n")
    following = Following("broker", Toys, load(path))
    path.write_text("broker: {quality: 2}\n")
    for _ in range(2):
        await following.look()
    assert list(following.restart_keys) == ["broker.quality"]


async def test_keys_that_wait_for_a_restart_are_named_until_they_are_as_before(
    taker: Taker,
) -> None:
    taker.path.write_text(START.replace("{models", "{quality: 2, models"))
    await taker.look()
    assert list(taker.following.restart_keys) == ["llm.quality"]
    assert taker.told == [""]
    taker.path.write_text(START)
    await taker.look()
    assert not taker.following.restart_keys
    assert taker.taken == [["a"], ["a"]]
