"""The one place that starts gRPC servers.

`serve` runs until SIGTERM or SIGINT: health turns NOT_SERVING, running calls get `drain_s` to
finish, then the process ends. A second signal exits at once.
"""

import asyncio
import errno
import os
import signal
import socket
import stat
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from chassis import log, tls
from chassis.channel import MAX_MESSAGE_BYTES
from chassis.interceptors import CallInterceptor
from chassis.metrics_servicer import NAME as METRICS
from chassis.metrics_servicer import add_metrics_service

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # At their defaults a burst of 2,000 calls has over a hundred refused as CANCELLED.
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A connection that does not get through its handshake is a descriptor held by a stranger.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),
)


class CannotListen(Exception):
    """The address cannot be bound; the text is one sentence for people."""


@dataclass(slots=True)
class Server:
    """A grpc.aio server with health, metrics and reflection; register servicers on `.grpc`."""

    names: Sequence[str]
    drain_s: float = 8.0
    # Quoted: by the time these are evaluated, the names are the fields of this class.
    grpc: "grpc.aio.Server" = field(init=False)
    health: "health.aio.HealthServicer" = field(init=False)
    finishing: list[Callable[[], Awaitable[None]]] = field(init=False, default_factory=list)
    """Awaited first when the server begins to stop: it still answers, and is not healthy any more.
    """
    leaving: list[Callable[[], None]] = field(init=False, default_factory=list)
    """Called when the server begins to stop: streams that would never end should end now."""
    closing: AsyncExitStack = field(init=False, default_factory=AsyncExitStack)
    """Closed when no call runs any more."""

    def __post_init__(self) -> None:
        self.grpc = grpc.aio.server(interceptors=[CallInterceptor()], options=_OPTIONS)
        self.health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.grpc)
        add_metrics_service(self.grpc)
        reflection.enable_server_reflection(
            (*self.names, METRICS, health.SERVICE_NAME, reflection.SERVICE_NAME), self.grpc
        )

    async def start(self, listen: str) -> str:
        """Bind `listen` and serve, health NOT_SERVING; answers the target to dial.

        Port 0 picks a free port. On TCP, callers must show a certificate where the process has
        one itself (`tls`). A stale socket file is replaced. Raises CannotListen.
        """
        await self.set_serving(False)
        if listen.startswith("unix:"):
            _clear_socket(Path(listen.removeprefix("unix:")))
        try:
            port = self._bind(listen)
        except RuntimeError:
            raise CannotListen(
                f"{listen} cannot be listened on: it is in use, or not an address of this machine"
            ) from None
        target = listen if listen.startswith("unix:") else f"{listen.rpartition(':')[0]}:{port}"
        await self.grpc.start()
        return target

    def _bind(self, listen: str) -> int:
        own = tls.of_process()
        if own is None or listen.startswith("unix:"):
            return self.grpc.add_insecure_port(listen)
        return self.grpc.add_secure_port(listen, own.for_server())

    async def set_serving(self, serving: bool) -> None:
        """Tell grpc.health.v1 whether the services can do their work now."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for name in ("", *self.names):
            await self.health.set(name, value)

    async def stop(self) -> None:
        """Refuse new calls, let running ones finish within `drain_s`, close what was opened."""
        await self.health.enter_graceful_shutdown()
        for finish in self.finishing:
            try:
                await finish()
            except Exception:  # what is held has to be given back all the same
                log.get().exception("bug")
        for leave in self.leaving:
            leave()
        await self.grpc.stop(self.drain_s)
        await self.closing.aclose()


def _clear_socket(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise CannotListen(f"{path} is there and is no socket; remove it, or listen elsewhere")
    except FileNotFoundError:
        return
    except OSError as error:
        raise CannotListen(f"{path} cannot be listened on: {error.strerror}") from None
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        if probe.connect_ex(str(path)) in (0, errno.EAGAIN):
            raise CannotListen(f"{path} is served by another process; stop that one first")
    path.unlink(missing_ok=True)


async def until_signal() -> None:
    """Return on the first SIGTERM, SIGINT or SIGHUP; from then on a second one exits at once.

    Started by nohup, it stays when its terminal goes.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        log.get().info("stopping", signal=signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue
        loop.add_signal_handler(number, on_signal, number)
    await stop.wait()


async def run(server: Server, listen: str, *, serving_at_once: bool = True) -> None:
    """Start, announce, serve until told to stop, stop.

    Without `serving_at_once` the caller turns health on itself, when it can do its work:
    `server.set_serving(True)`.
    """
    target = await server.start(listen)
    if serving_at_once:
        await server.set_serving(True)
    log.get().info("serving", address=target)
    await until_signal()
    await server.stop()


def service_name(module: Any, name: str) -> str:
    """Full name of service `name` in a generated `_pb2` module, for health and reflection."""
    return str(module.DESCRIPTOR.services_by_name[name].full_name)
