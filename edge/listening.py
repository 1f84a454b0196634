"""The listening socket: bound, accepted from, and closed so that nobody who stands in line is lost.

Connections that the kernel has taken in, but nobody has accepted, end in a reset when the socket
is closed. So the line is emptied first, in the same breath. Whoever knocks after that is refused,
which clients and balancers know to be safe to repeat elsewhere.

Who serves a connection is not decided here.
"""

import asyncio
import resource
import socket
from collections.abc import Callable

from chassis import log
from chassis.config import ConfigError

BACKLOG = 4096
_AT_ONCE = 64
"""Accepted before others have the loop."""
_PAUSE_S = 0.02
"""When nobody can take a connection; the line is kept by the kernel meanwhile."""
_SAY_S = 10.0
"""How often it is said that connections cannot be accepted."""
_TRIES = 50
"""Pauses that who stands in line at the end is worth."""

Take = Callable[[socket.socket], bool]
"""Owns the connection from now on. False: not now, it is to be offered again."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises ConfigError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        message = f"edge.listen: cannot listen on {host}:{port}: {error.strerror}"
        raise ConfigError(message) from None
    listener.setblocking(False)
    return listener


class Listener:
    """Accepts, and offers each connection to `take`."""

    def __init__(self, listener: socket.socket, take: Take) -> None:
        self._socket = listener
        self._take = take
        self._offered: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._say_at_s = 0.0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        bound = self._socket.getsockname()
        return str(bound[0]), int(bound[1])

    def start(self) -> None:
        """Begin to accept, with whoever could not be taken before."""
        self._timer = None
        self._loop.add_reader(self._socket.fileno(), self._accept)
        if self._offered is not None:
            self._accept()

    async def close(self) -> None:
        """Take in whoever stands in line, and listen no more. Again is nothing."""
        if self._socket.fileno() < 0:
            return
        self._pause_over()
        self._loop.remove_reader(self._socket.fileno())
        for _ in range(_TRIES):
            try:
                if self._line_is_empty():
                    break
            except OSError as error:  # e.g. no descriptor is left; some may be given back
                self._say(error)
            await asyncio.sleep(_PAUSE_S)
        self._socket.close()
        if self._offered is not None:
            self._offered.close()

    def _line_is_empty(self) -> bool:
        """After all who stand in it were offered; False: not all were taken."""
        while (connection := self._next()) is not None:
            if not self._offer(connection):
                return False
        return True

    def _accept(self) -> None:
        try:
            for _ in range(_AT_ONCE):
                connection = self._next()
                if connection is None:
                    return
                if not self._offer(connection):
                    break
            else:
                return
        except OSError as error:  # e.g. no descriptor is left
            self._say(error)
        self._loop.remove_reader(self._socket.fileno())
        self._timer = self._loop.call_later(_PAUSE_S, self.start)

    def _say(self, error: OSError) -> None:
        # Whoever opens connections must not be able to fill the log as well.
        if self._loop.time() >= self._say_at_s:
            self._say_at_s = self._loop.time() + _SAY_S
            log.get().warning("cannot accept", error=error.strerror)

    def _next(self) -> socket.socket | None:
        offered, self._offered = self._offered, None
        if offered is not None:
            return offered
        while True:
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return None
            except ConnectionAbortedError:  # it has left the line
                continue
            connection.setblocking(False)
            return connection

    def _offer(self, connection: socket.socket) -> bool:
        if self._take(connection):
            return True
        self._offered = connection
        return False

    def _pause_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def take_all_descriptors() -> None:
    """Each open request is a socket; the usual soft limit of 1,024 is far below what is bounded."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
