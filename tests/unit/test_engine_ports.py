"""Ports of engines, and the address that they are told to be at."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from hosting.own_address import address_towards, in_target
from hosting.ports import Ports, is_free


def ports_of(first: int, last: int, foreign: set[int]) -> Ports:
    return Ports("llm", first, last, lambda port: port not in foreign)


@given(st.lists(st.integers(0, 9)), st.sets(st.integers(0, 7)))
def test_no_port_is_lent_twice_and_none_is_lost(steps: list[int], foreign: set[int]) -> None:
    ports = ports_of(0, 7, foreign)
    out: list[int] = []
    for step in steps:
        if step < len(out):
            ports.give_back(out.pop(step))
            continue
        if len(out) + len(foreign) == 8:
            with pytest.raises(Fault):
                ports.take()
            continue
        out.append(ports.take())
        assert len(set(out)) == len(out)
        assert not foreign & set(out)
    for port in out:
        ports.give_back(port)
    assert {ports.take() for _ in range(8 - len(foreign))} == set(range(8)) - foreign


def test_what_came_back_last_is_taken_last() -> None:
    ports = ports_of(1, 3, set())
    first = ports.take()
    ports.give_back(first)
    assert [ports.take(), ports.take(), ports.take()] == [2, 3, first]


def test_a_port_that_two_engines_had_in_turn_is_lent_once() -> None:
    ports = ports_of(1, 2, set())
    first, _ = ports.take(), ports.take()
    assert ports.take_another(than=first) == first  # there is no other
    for _ in range(2):
        ports.give_back(first)
    assert ports.take() == first
    with pytest.raises(Fault):
        ports.take()


def test_a_renewed_engine_gets_another_if_there_is_one() -> None:
    ports = ports_of(1, 2, set())
    first = ports.take()
    other = ports.take_another(than=first)
    assert other != first
    assert ports.take_another(than=other) == other


def test_the_refusal_tells_foreign_programs_from_engines() -> None:
    ports = ports_of(5, 6, {6})
    ports.take()
    with pytest.raises(Fault) as caught:
        ports.take()
    assert caught.value.reason is Reason.NO_HEADROOM
    assert "(5 to 6) are taken, 1 of them by other programs" in caught.value.message


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_port_is_free_unless_somebody_listens(host: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not is_free(host, port)
    assert is_free(host, port)


async def test_the_address_is_that_of_the_route() -> None:
    assert await address_towards("127.0.0.1:9102") == "127.0.0.1"
    assert await address_towards("localhost:9102") in {"127.0.0.1", "[::1]"}
    assert await address_towards("unix:/run/cohabit/scheduler.sock") == "127.0.0.1"


async def test_a_scheduler_that_cannot_be_found_is_said_so() -> None:
    with pytest.raises(Fault, match="set engine_host to an address") as caught:
        await address_towards("no-such-host.invalid:9102")
    assert caught.value.reason is Reason.MODEL_FAILED


@pytest.mark.parametrize(
    ("host", "shown"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]"), ("[::1]", "[::1]")]
)
def test_addresses_of_ipv6_stand_in_brackets(host: str, shown: str) -> None:
    assert in_target(host) == shown
