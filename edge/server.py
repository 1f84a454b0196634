"""The HTTP server: uvicorn on connections that are given to it, stopped without losing a request.

How it stops, in order:

1. *draining*: `/readyz` says 503, every answer that begins carries `connection: close`. New
   connections are still taken, for `linger_s`, so that a balancer can notice.
2. The listener closes, with nobody left in line.
3. A connection on which nothing is asked is closed once it has been quiet for `QUIET_S`, and not
   while bytes of it lie unread: its client may have sent a request in the belief that it is open.
   HTTP/1.1 has no other way to say goodbye on it. Running answers have `drain_s` to end.
4. What still runs is cancelled, and has a last word for its client.
"""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from edge.listening import BACKLOG, Listener, bind, take_all_descriptors
from edge.protocol import Protocol
from edge.standing import Standing

QUIET_S = 0.25
_IDLE_CONNECTION_S = 75
_LAST_WORD_S = 0.5
_LOOK_S = 0.02


class Connections(uvicorn.Server):
    """uvicorn without listeners and signal handlers, which whoever runs the process has."""

    def __init__(
        self, app: ASGIApp, standing: Standing, left: Callable[[], None] = lambda: None
    ) -> None:
        """`left` is called for every connection that has ended."""
        super().__init__(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                # The access layer logs what happens to requests, each of its failures once.
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=_IDLE_CONNECTION_S,
            )
        )
        self._standing, self._left = standing, left
        self._serving: asyncio.Task[None] | None = None
        self._arriving: set[asyncio.Task[object]] = set()

    @property
    def count(self) -> int:
        """Connections that are open."""
        return len(self.server_state.connections) + len(self._arriving)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def open(self) -> None:
        """Be ready for connections."""
        take_all_descriptors()
        self._serving = asyncio.create_task(self.serve(sockets=[]))

    def adopt(self, connection: socket.socket) -> bool:
        """Serve a connection that was accepted; as `listening.Take`, always True."""
        loop = asyncio.get_running_loop()
        arriving = loop.create_task(loop.connect_accepted_socket(self._protocol, connection))
        self._arriving.add(arriving)
        arriving.add_done_callback(self._arrived)
        return True

    def drain(self) -> None:
        """From now on every answer that begins is the last one on its connection."""
        self._standing.draining = True
        for connection in self.protocols():
            connection.last_answer()

    async def finish(self, drain_s: float) -> None:
        """No connection comes any more: end those there are, within about `drain_s`."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + drain_s
        while (self.count or self.server_state.tasks) and loop.time() < ends_at:
            for connection in self.protocols():
                connection.leave_if_quiet(QUIET_S)
            await asyncio.sleep(_LOOK_S)
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:  # each has a last word for its client
            await asyncio.wait(tasks, timeout=_LAST_WORD_S)
        self.should_exit = True
        if self._serving is not None:
            await self._serving

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        """What is left: connections that are quiet, or that take no last word."""
        for connection in self.protocols():
            connection.transport.close()

    def _protocol(self) -> Protocol:
        return Protocol(
            config=self.config,
            server_state=self.server_state,
            app_state={},
            standing=self._standing,
            left=self._left,
        )

    def protocols(self) -> list[Protocol]:
        """Those that are open."""
        return [it for it in self.server_state.connections if isinstance(it, Protocol)]

    def _arrived(self, task: asyncio.Task[object]) -> None:
        self._arriving.discard(task)
        if task.cancelled() or task.exception() is not None:  # it was never served
            self._left()


class HttpServer:
    """An edge in one process: a listener and its connections."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        drain_s: float,
        linger_s: float = 0.0,
        standing: Standing | None = None,
    ) -> None:
        self._at = host, port
        self._drain_s, self._linger_s = drain_s, linger_s
        self._connections = Connections(app, standing or Standing())
        self._listener: Listener | None = None

    async def start(self) -> tuple[str, int]:
        """Bind and serve; answers host and port (port 0 picks a free one). Raises ConfigError."""
        self._listener = Listener(bind(*self._at), self._connections.adopt)
        await self._connections.open()
        self._listener.start()
        return self._listener.address

    def connections(self) -> list[Protocol]:
        """Those that are open."""
        return self._connections.protocols()

    async def stop(self) -> None:
        """All four steps."""
        self._connections.drain()
        await asyncio.sleep(self._linger_s)
        if self._listener is not None:
            await self._listener.close()
        await self._connections.finish(self._drain_s)
