"""Asks every service for its metrics, side by side and with little patience.

One that does not answer costs nothing but its own figures: `cohabit_up` says which. However many
ask at once, the services are asked once.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import grpc
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from chassis import log, metrics
from chassis.channel import open_channel
from cohabit.common.v1 import metrics_pb2, metrics_pb2_grpc
from edge.signals.exposition import merged
from edge.signals.metrics import house_families
from edge.standing import Standing

if TYPE_CHECKING:
    from cohabit.common.v1.metrics_pb2_grpc import MetricsServiceAsyncStub as Stub

ANSWER_S = 1.0
_EDGE = "edge"


class Gathering:
    """`services`: every service of gRPC there is, by name."""

    def __init__(self, services: "Mapping[str, Stub]", standing: Standing, version: str) -> None:
        self._services = services
        self._standing, self._version = standing, version
        self._running: asyncio.Task[str] | None = None

    async def text(self) -> str:
        """The metrics of the house. Never raises Fault."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._gathered())
        # Shielded: who asked first may leave, and others wait for the same.
        return await asyncio.shield(self._running)

    async def _gathered(self) -> str:
        names = (_EDGE, *self._services)
        found = await asyncio.gather(_own(), *map(_asked, self._services.values()))
        texts = {name: text for name, text in zip(names, found, strict=True) if text is not None}
        up = {name: name in texts for name in names}
        house = _Families(house_families(up, self._standing, self._version))
        return await asyncio.to_thread(merged, texts, generate_latest(house).decode())


async def _own() -> str | None:
    try:
        return await metrics.text()
    except Exception as error:  # e.g. a worker's file that is cut: the services' are whole
        log.get().warning("own metrics not read", error=f"{type(error).__name__}: {error}")
        return None


async def _asked(stub: "Stub") -> str | None:
    try:
        answer = await stub.GetMetrics(metrics_pb2.GetMetricsRequest(), timeout=ANSWER_S)
    except grpc.aio.AioRpcError:
        return None
    return answer.text


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """What it was made of."""
        return self._families


@asynccontextmanager
async def gathering(
    addresses: Mapping[str, str], standing: Standing, version: str
) -> AsyncIterator[Gathering]:
    """Connected to the services at `addresses` until the block ends."""
    async with AsyncExitStack() as stack:
        stubs: dict[str, Stub] = {}
        for name, address in addresses.items():
            channel = await stack.enter_async_context(open_channel(address))
            stubs[name] = metrics_pb2_grpc.MetricsServiceStub(channel)
        yield Gathering(stubs, standing, version)
