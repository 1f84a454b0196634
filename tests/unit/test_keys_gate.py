"""The gate by itself: what stands behind it sees who calls, and never with which key."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from edge.keys.caller import caller_of
from edge.keys.counting import OwnCounting
from edge.keys.credential import NAMES
from edge.keys.file import read_keys
from edge.keys.gate import Checked, Gate
from edge.keys.keyring import Keyring
from tests.keys_kit import secret_of, write_keys


class Behind:
    """What stands behind the gate, and notes what comes through."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.caller = "nobody came"

    async def __call__(self, scope: MutableMapping[str, Any], _receive: Any, _send: Any) -> None:
        self.headers, self.caller = scope["headers"], caller_of(scope).name


async def receive() -> dict[str, Any]:
    raise AssertionError("the gate reads no body")


async def send(message: MutableMapping[str, Any]) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("name", sorted(NAMES))
async def test_no_room_behind_it_sees_a_key(
    tmp_path: Path, name: bytes, keyed: bool, limited: bool
) -> None:
    write_keys(tmp_path / "keys.yaml", alice={"concurrent": 4} if limited else {})
    keyring = Keyring(read_keys(tmp_path / "keys.yaml"))
    behind = Behind()
    gate = Gate(behind, Checked(lambda: keyring, OwnCounting()) if keyed else None)
    secret = secret_of("alice").encode()
    value = b"Bearer " + secret if name == b"authorization" else secret
    headers = [(b"host", b"x"), (name, value), (b"x-cohabit-tier", b"sub")]
    scope = {"type": "http", "path": "/v1/chat/completions", "headers": headers}
    await gate(scope, receive, send)
    assert behind.caller == ("alice" if keyed else "")
    assert behind.headers == [(b"host", b"x"), (b"x-cohabit-tier", b"sub")]


async def test_reading_signals_is_not_counted(tmp_path: Path) -> None:
    rights = {"signals": True, "models": [], "requests_per_minute": 1, "concurrent": 1}
    keyring = Keyring(read_keys(write_keys(tmp_path / "keys.yaml", watcher=rights)))
    behind = Behind()
    gate = Gate(behind, Checked(lambda: keyring, OwnCounting()))
    for _ in range(3):
        scope = {
            "type": "http",
            "path": "/metrics",
            "client": ("192.0.2.7", 1),
            "headers": [(b"x-api-key", secret_of("watcher").encode())],
        }
        behind.caller = "nobody came"
        await gate(scope, receive, send)  # which would refuse the second one
        assert behind.caller == "watcher"
