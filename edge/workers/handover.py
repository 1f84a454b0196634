"""Open connections from the parent to a worker, as descriptors over a Unix socket."""

import asyncio
import socket
from collections.abc import Callable

_MARK = b"."
_AT_ONCE = 64


def way() -> tuple[socket.socket, socket.socket]:
    """Both ends of a way, for the parent and for the worker."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
    return ends


def give(end: socket.socket, connection: socket.socket) -> bool:
    """Hand a connection over and close our end of it; False: not now, the way is full or gone."""
    try:
        socket.send_fds(end, [_MARK], [connection.fileno()])
    except OSError:
        return False
    connection.close()
    return True


class Receiver:
    """The worker's end: gives `take` every connection that comes."""

    def __init__(
        self,
        end: socket.socket,
        take: Callable[[socket.socket], object],
        lost: Callable[[], object],
    ) -> None:
        """`lost` is called for a connection that came when no descriptor was left for it."""
        self._end, self._take, self._lost = end, take, lost
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin."""
        self._loop.add_reader(self._end.fileno(), self._ready)

    def stop(self) -> None:
        """Take what has been given already, and nothing any more."""
        while self._one():
            pass
        self._loop.remove_reader(self._end.fileno())
        self._end.close()

    def _ready(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._one():
                return

    def _one(self) -> bool:
        try:
            mark, descriptors, _, _ = socket.recv_fds(self._end, len(_MARK), 1)
        except BlockingIOError:
            return False
        if not mark:  # the parent is gone
            self._loop.remove_reader(self._end.fileno())
            return False
        if not descriptors:  # the system has closed it
            self._lost()
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            self._take(connection)
        return True
