"""The scheduler and the broker of the configured house, dialled for one command.

What goes wrong on the way becomes one sentence for people. Every call has a deadline; a stream has
one for its silence.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import grpc
import typer

from chassis import config, tls_config
from chassis.channel import open_channel
from chassis.status import DETAILS_KEY, fault_of
from cli.console import Refused, printable
from cohabit.broker.v1 import broker_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc

if TYPE_CHECKING:
    from cohabit.broker.v1.broker_pb2_grpc import BrokerServiceAsyncStub
    from cohabit.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceAsyncStub

T = TypeVar("T")

ConfigOption = Annotated[Path | None, typer.Option("--config", help="cohabit.yaml to use.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

TIMEOUT_S = 5.0
"""Of a call that only asks."""
INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True, slots=True)
class Dialled:
    """Stubs of those who decide and those who lend."""

    scheduler: "SchedulerServiceAsyncStub"
    broker: "BrokerServiceAsyncStub"
    address_of: Callable[[str], str]
    """The gRPC target of a service, by name."""
    services: tuple[str, ...] = ()
    """Those of gRPC that the configuration has."""


def with_house(config_path: Path | None, work: Callable[[Dialled], Awaitable[T]]) -> T:
    """Run `work` on the house of the configuration. Raises Refused; KeyboardInterrupt on Ctrl-C."""
    try:
        document = config.load(config_path)
        house = document.house()
        tls_config.adopt(document)
    except config.ConfigError as error:
        config.fail(error)
    try:
        return asyncio.run(_dialled(house, document.grpc_services(), work))
    except asyncio.CancelledError:  # by SIGTERM; the terminal is as it was before
        raise SystemExit(128 + signal.SIGTERM) from None


async def _dialled(
    house: config.House, services: tuple[str, ...], work: Callable[[Dialled], Awaitable[T]]
) -> T:
    if task := asyncio.current_task():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with (
        open_channel(house.address_of("scheduler")) as to_scheduler,
        open_channel(house.address_of("broker")) as to_broker,
    ):
        return await work(
            Dialled(
                scheduler_pb2_grpc.SchedulerServiceStub(to_scheduler),
                broker_pb2_grpc.BrokerServiceStub(to_broker),
                house.address_of,
                services,
            )
        )


@contextmanager
def answered(peer: str) -> Iterator[None]:
    """Turns a call to `peer` that fails within into Refused."""
    try:
        yield
    except (grpc.aio.AioRpcError, TimeoutError) as error:
        raise Refused(sentence(error, peer)) from None


def sentence(error: grpc.aio.AioRpcError | TimeoutError, peer: str) -> str:
    """Why a call to `peer` failed: the peer's own words where it had any."""
    if isinstance(error, TimeoutError) or _bare(error, grpc.StatusCode.DEADLINE_EXCEEDED):
        return f"The {peer} does not answer in time; see what is wrong with `cohabit status`."
    if _bare(error, grpc.StatusCode.UNAVAILABLE):
        return (
            f"The {peer} does not answer; start the house with `cohabit up`, "
            "or see what is down with `cohabit status`."
        )
    return printable(fault_of(error, peer).message)


def _bare(error: grpc.aio.AioRpcError, code: grpc.StatusCode) -> bool:
    """Whether it is the library's own status, and not one that the peer chose."""
    trailers = error.trailing_metadata() or ()
    return error.code() is code and all(key != DETAILS_KEY for key, _ in trailers)


async def heard(call: Any, silence_s: float) -> AsyncGenerator[Any, None]:
    """The messages of a stream, to its end; TimeoutError when none came for `silence_s`.

    The call is cancelled when the reader leaves.
    """
    try:
        while True:
            async with asyncio.timeout(silence_s):
                message = await call.read()
            if message is grpc.aio.EOF:
                return
            yield message
    finally:
        call.cancel()
