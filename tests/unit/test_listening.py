"""The listening socket when there is no descriptor left for who knocks."""

import asyncio
import errno
import socket

import pytest
from structlog.testing import capture_logs

from edge import listening
from edge.listening import Listener

DEADLINE_S = 5.0


async def test_who_cannot_be_accepted_fills_no_log_and_is_served_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "_PAUSE_S", 0.001)
    taken: asyncio.Queue[socket.socket] = asyncio.Queue()
    door = _Full(6)

    def take(connection: socket.socket) -> bool:
        taken.put_nowait(connection)
        return True

    listener = Listener(door, take)
    with capture_logs() as lines, socket.create_connection(listener.address) as client:
        listener.start()
        connection = await asyncio.wait_for(taken.get(), DEADLINE_S)
        with connection:
            assert connection.getpeername() == client.getsockname()
    await listener.close()
    assert door.refusals == 0
    assert [line["event"] for line in lines] == ["cannot accept"]


class _Full(socket.socket):
    """Refuses so many times."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals
        self.bind(("127.0.0.1", 0))
        self.listen()
        self.setblocking(False)

    def accept(self) -> tuple[socket.socket, object]:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()
