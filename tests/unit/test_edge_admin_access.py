"""Who may use the admin routes."""

from typing import Any

import pytest
from starlette.requests import Request

from chassis.errors import Fault, Reason
from edge.admin_access import check_local, is_loopback


def request(peer: str | None = "127.0.0.1", **headers: str) -> Request:
    told = {"host": "127.0.0.1:8080"} | {name.replace("_", "-"): v for name, v in headers.items()}
    scope: dict[str, Any] = {
        "type": "http",
        "client": (peer, 40_000) if peer is not None else None,
        "headers": [(name.encode(), value.encode()) for name, value in told.items()],
    }
    return Request(scope)


@pytest.mark.parametrize(
    "allowed",
    [
        request(),
        request("::1", host="[::1]:8080"),
        request("::ffff:127.0.0.1", host="localhost"),
        request("127.9.9.9", origin="http://localhost:3000"),
    ],
)
async def test_people_on_the_machine_may(allowed: Request) -> None:
    await check_local(allowed)


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (request("10.0.0.7"), "on this machine alone"),
        (request("10.0.0.7", x_forwarded_for="127.0.0.1"), "on this machine alone"),
        (request("::ffff:10.0.0.7"), "on this machine alone"),
        (request(None), "on this machine alone"),
        (request(x_forwarded_for="127.0.0.1"), "x-forwarded-for"),
        (request(forwarded="for=127.0.0.1"), "forwarded"),
        (request(via="1.1 somewhere"), "via"),
        (request(host="cohabit.example"), "by another name"),
        (request(host=""), "by another name"),
        (request(origin="https://elsewhere.example"), "page from elsewhere"),
        (request(origin="null"), "page from elsewhere"),
        (request(origin="http://[::1"), "page from elsewhere"),
    ],
)
async def test_nobody_else_may(refused: Request, said: str) -> None:
    with pytest.raises(Fault) as caught:
        await check_local(refused)
    assert caught.value.reason is Reason.LOCAL_ONLY
    assert said in caught.value.message


def test_what_is_this_machine() -> None:
    assert is_loopback("localhost")
    assert not is_loopback("localhost.example")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("")
