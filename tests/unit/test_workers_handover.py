"""Open connections cross from one process to another: none is lost, none stays open behind."""

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from edge.workers.handover import Receiver, give, way

DEADLINE_S = 5.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as it:
        yield it


def _never() -> None:
    raise AssertionError


def connected(listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    """A client, and the connection that was accepted from it."""
    client = socket.create_connection(listener.getsockname())
    return client, listener.accept()[0]


async def test_the_same_connection_comes_out(listener: socket.socket) -> None:
    ours, its = way()
    arrived: asyncio.Queue[socket.socket] = asyncio.Queue()
    receiver = Receiver(its, arrived.put_nowait, _never)
    receiver.start()
    client, accepted = connected(listener)
    with closing(client), closing(ours):
        assert give(ours, accepted)
        assert accepted.fileno() == -1  # one owner
        connection = await asyncio.wait_for(arrived.get(), DEADLINE_S)
        with closing(connection):
            assert not connection.getblocking()
            assert connection.getpeername() == client.getsockname()
            client.sendall(b"hello")
            loop = asyncio.get_running_loop()
            assert await loop.sock_recv(connection, 5) == b"hello"
        assert client.recv(1) == b""  # nobody else holds it open
        receiver.stop()


async def test_what_was_given_before_the_end_is_taken(listener: socket.socket) -> None:
    ours, its = way()
    arrived: list[socket.socket] = []
    receiver = Receiver(its, arrived.append, _never)
    receiver.start()
    pairs = [connected(listener) for _ in range(5)]
    for _, accepted in pairs:
        assert give(ours, accepted)
    receiver.stop()  # the loop has not run since
    assert len(arrived) == 5
    client, accepted = connected(listener)
    assert give(ours, accepted) is False
    for end in (ours, client, accepted, *arrived, *(client for client, _ in pairs)):
        end.close()


async def test_a_connection_without_a_descriptor_is_told_as_lost(listener: socket.socket) -> None:
    ours, its = way()
    lost: list[int] = []
    receiver = Receiver(its, lambda _: _never(), lambda: lost.append(1))
    client, accepted = connected(listener)
    with closing(client), closing(ours):
        assert give(ours, accepted)
        with no_descriptor():
            receiver.stop()  # takes what has been given
        assert lost == [1]
        assert client.recv(1) == b""  # its client knows as well


@contextmanager
def no_descriptor() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)  # descriptors are given from the lowest
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_way_that_is_full_says_so_and_leaves_the_connection_alone(
    listener: socket.socket,
) -> None:
    ours, its = way()
    held = []
    client, accepted = connected(listener)
    while give(ours, twin := accepted.dup()):  # nobody takes them
        held.append(twin)
    assert len(held) > 10
    assert twin.fileno() != -1
    for end in (ours, its, client, accepted, twin):
        end.close()
