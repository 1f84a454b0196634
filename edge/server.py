"""The HTTP server: uvicorn, stopped the way every service of the house is stopped."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from chassis.config import ConfigError
from edge.protocol import Protocol

_BACKLOG = 4096
_IDLE_CONNECTION_S = 75
_LAST_WORD_S = 0.5


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own."""

    def __init__(self, app: ASGIApp, host: str, port: int, drain_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                # The access layer logs what happens to requests, each of its failures once.
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_IDLE_CONNECTION_S,
                timeout_graceful_shutdown=max(1, round(drain_s)),
            )
        )
        self._serving: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def start(self) -> tuple[str, int]:
        """Bind and serve; answers host and port (port 0 picks a free one). Raises ConfigError."""
        _take_all_descriptors()
        host, port = self.config.host, self.config.port
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            message = f"edge.listen: cannot listen on {host}:{port}: {error.strerror}"
            raise ConfigError(message) from None
        bound = listener.getsockname()
        self._serving = asyncio.create_task(self.serve(sockets=[listener]))
        return str(bound[0]), int(bound[1])

    async def stop(self) -> None:
        """Take nothing new, let running answers finish within the drain time, then cancel them."""
        self.should_exit = True
        if self._serving is not None:
            await self._serving
        if self.server_state.tasks:  # cancelled: each has a last word for its client
            await asyncio.wait(self.server_state.tasks, timeout=_LAST_WORD_S)


def _take_all_descriptors() -> None:
    # Each open request is a socket; the usual soft limit of 1,024 is far below what is bounded.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
