"""The file of keys changes while the edge runs."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chassis.config import ConfigError
from edge.keys import watch
from edge.keys.file import read_keys
from tests.edge_kit import CHAT, DEADLINE_S, House, opened
from tests.keys_kit import bearing, secret_of, write_keys


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(watch, "LOOK_S", 0.01)
    write_keys(tmp_path / "keys.yaml", alice={}, bob={})
    async with opened(tmp_path, keys_file=tmp_path / "keys.yaml") as up:
        yield up


async def asked(house: House, name: str) -> int:
    headers = bearing(name)
    return (await house.http.post("/v1/chat/completions", json=CHAT, headers=headers)).status_code


async def until(house: House, name: str, status: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await asked(house, name) != status:
            pass


async def until_told(house: House, what: str) -> None:
    """That /status gives it as a reason; empty: that there is none."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            reasons = " ".join((await house.http.get("/status")).json()["reasons"])
            if (what in reasons) if what else ("API keys" not in reasons):
                return
            await asyncio.sleep(0.005)


async def test_keys_come_and_go(house: House, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    write_keys(file, alice={}, carol={})
    await until(house, "carol", 200)
    assert (await asked(house, "alice"), await asked(house, "bob")) == (200, 401)
    write_keys(file, alice={"disabled": True}, carol={"models": []})
    await until(house, "alice", 401)
    assert await asked(house, "carol") == 403


async def test_what_runs_goes_on_without_its_key(house: House, tmp_path: Path) -> None:
    house.peers.generate = house.peers.says_and_hangs
    body = CHAT | {"stream": True}
    async with house.http.stream(
        "POST", "/v1/chat/completions", json=body, headers=bearing("bob")
    ) as stream:
        text = stream.aiter_text()
        assert "Hel" in await anext(text)
        house.peers.generate = house.peers.says_hello
        write_keys(tmp_path / "keys.yaml", alice={})
        await until(house, "bob", 401)
        begun, over = map(house.peers.happened.count, ("generate", "generate over"))
        assert begun > over


async def test_a_broken_file_changes_nothing_and_is_told(house: House, tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    await until_told(house, "")
    secret = secret_of("carol")
    file.write_text(f"carol:\n  hash: {secret}\n")
    await until_told(house, "keys.yaml:2: carol.hash: expected sha256:")
    assert (await asked(house, "alice"), await asked(house, "carol")) == (200, 401)
    assert secret not in (await house.http.get("/status")).text
    write_keys(file, carol={})
    await until(house, "carol", 200)
    await until_told(house, "")
    assert await asked(house, "alice") == 401


async def test_a_look_that_fails_is_not_the_last(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, failed = asyncio.get_running_loop(), asyncio.Event()

    def read(path: Path) -> Any:
        if not failed.is_set():
            loop.call_soon_threadsafe(failed.set)
            raise ZeroDivisionError  # a bug that nobody has thought of yet
        return read_keys(path)

    monkeypatch.setattr(watch, "read_keys", read)
    write_keys(tmp_path / "keys.yaml", alice={"models": []})
    await asyncio.wait_for(failed.wait(), DEADLINE_S)
    write_keys(tmp_path / "keys.yaml", carol={})
    await until(house, "alice", 401)
    await until(house, "carol", 200)


async def test_a_file_that_is_gone_takes_its_keys_with_it(house: House, tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").unlink()
    await until(house, "alice", 401)
    write_keys(tmp_path / "keys.yaml", alice={})
    await until(house, "alice", 200)


async def test_a_file_that_is_replaced_is_missed_for_no_moment(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    write_keys(path, alice={})
    file = watch.KeysFile(path)
    before = file.keyring
    path.unlink()
    await file.look()
    assert file.keyring is before
    write_keys(path, alice={})
    await file.look()
    assert len(file.keyring) == 1
    path.unlink()
    await file.look()
    assert len(file.keyring) == 1
    await file.look()
    assert len(file.keyring) == 0


async def test_a_file_that_the_system_refuses_for_a_while_is_read_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.yaml"
    write_keys(path, alice={}, bob={})
    file = watch.KeysFile(path)
    write_keys(path, alice={})
    with monkeypatch.context() as full:
        full.setattr(Path, "read_text", _no_descriptor)
        await file.look()
        assert len(file.keyring) == 2
        assert "Too many open files" in file.problems()[0]
    await file.look()
    assert (len(file.keyring), file.problems()) == (1, [])


def _no_descriptor(*_: object, **__: object) -> str:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_a_file_that_is_broken_at_the_start_stops_it(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text("alice: 7\n")
    with pytest.raises(ConfigError, match=r"keys\.yaml:1: alice: expected"):
        async with opened(tmp_path, keys_file=file):
            pass


async def test_a_request_may_name_no_key_in_its_query(house: House) -> None:
    answer: httpx.Response = await house.http.post(
        "/v1/chat/completions", json=CHAT, params={"secret": secret_of("alice")}
    )
    assert answer.status_code == 401
