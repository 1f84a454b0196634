"""Who may use the admin routes."""

from typing import Any

import pytest
from starlette.requests import Request

from chassis.errors import Fault, Reason
from edge.admin_access import check_local
from edge.loopback import is_loopback


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
        (request(x_real_ip="127.0.0.1"), "x-real-ip"),
        (request(cf_connecting_ip="127.0.0.1"), "cf-connecting-ip"),
        (request(true_client_ip="127.0.0.1"), "true-client-ip"),
        (request(x_envoy_external_address="127.0.0.1"), "x-envoy-external-address"),
        (request(x_envoy_internal="true"), "x-envoy-internal"),
        (request(x_forwarded_port="443"), "x-forwarded-port"),
        (request(x_forwarded="for=127.0.0.1"), "x-forwarded"),
        (request(x_original_url="/v1/models"), "x-original-url"),
        (request(x_rewrite_url="/v1/models"), "x-rewrite-url"),
        (request("fe80::1%lo"), "on this machine alone"),
        (request("0.0.0.0"), "on this machine alone"),
        (request("::"), "on this machine alone"),
        (request("::ffff:0:127.0.0.1"), "on this machine alone"),
        (request("127.0.0.1.elsewhere.example"), "on this machine alone"),
        (request("2130706433"), "on this machine alone"),
        (request("0x7f.1"), "on this machine alone"),
        (request("localhost.elsewhere.example"), "on this machine alone"),
        (request(host="localhost@elsewhere.example"), "by another name"),
        (request(host="elsewhere.example@127.0.0.1"), "by another name"),
        (request(host="127.0.0.1/@elsewhere.example"), "by another name"),
        (request(host="localhost.elsewhere.example"), "by another name"),
        (request(host="127.0.0.1, elsewhere.example"), "by another name"),
        (request(origin="http://127.0.0.1@elsewhere.example"), "page from elsewhere"),
        (request(origin="http://127.0.0.1.elsewhere.example"), "page from elsewhere"),
        (request(sec_fetch_site="cross-site"), "page from elsewhere"),
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


def twice(name: str, first: str, second: str) -> Request:
    """A request with a header twice, of which a proxy and we might read one each."""
    told = request()
    told.scope["headers"] = [it for it in told.scope["headers"] if it[0] != name.encode()]
    told.scope["headers"] += [(name.encode(), it.encode()) for it in (first, second)]
    return told


@pytest.mark.parametrize(
    "refused",
    [
        twice("host", "127.0.0.1", "elsewhere.example"),
        twice("host", "127.0.0.1", "127.0.0.1"),
        twice("origin", "http://localhost", "https://elsewhere.example"),
    ],
)
async def test_a_header_that_stands_twice_opens_nothing(refused: Request) -> None:
    with pytest.raises(Fault):
        await check_local(refused)


async def test_underscores_hide_no_proxy() -> None:
    told = request()
    told.scope["headers"].append((b"x_forwarded_for", b"127.0.0.1"))
    with pytest.raises(Fault):
        await check_local(told)


def test_what_is_this_machine() -> None:
    assert is_loopback("localhost")
    assert not is_loopback("localhost.example")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("")
