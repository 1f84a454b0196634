"""The ports of one service's engines, over TCP.

One that was given back is taken last again: who was sent to the engine that is gone shall not find
another at its address. One that a foreign program holds is passed over.
"""

import errno
import socket
from collections import deque
from collections.abc import Callable

from chassis.errors import Fault, Reason

IsFree = Callable[[int], bool]


class Ports:
    """Those from `first` to `last`; `is_free` says whether nobody else listens there."""

    def __init__(self, service: str, first: int, last: int, is_free: IsFree) -> None:
        self._service, self._range, self._is_free = service, (first, last), is_free
        self._idle = deque(range(first, last + 1))

    def take(self) -> int:
        """One that is free. Raises Fault NO_HEADROOM when there is none."""
        for _ in range(len(self._idle)):
            port = self._idle.popleft()
            if self._is_free(port):
                return port
            self._idle.append(port)
        raise self._none_left()

    def take_another(self, than: int) -> int:
        """As `take`, or the same one again when there is no other."""
        try:
            return self.take()
        except Fault:
            return than

    def give_back(self, port: int) -> None:
        """Nobody listens there any more."""
        if port not in self._idle:
            self._idle.append(port)

    def _none_left(self) -> Fault:
        first, last = self._range
        held = f", {len(self._idle)} of them by other programs" if self._idle else ""
        return Fault(
            Reason.NO_HEADROOM,
            f"All ports for engines of the {self._service} service ({first} to {last}) are taken"
            f"{held}; unload a model, or widen engine_ports.",
        )


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there; `host` is an IP address, or empty for any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            # Of anything else that is amiss the engine itself tells, and better.
            return error.errno != errno.EADDRINUSE
    return True
