"""Prometheus metrics that every gRPC service has, and how those of a process are read.

They are asked for by `cohabit.common.v1.MetricsService` (`metrics_servicer`), which is how the edge
gathers those of the whole house, and on a port of their own where the configuration names one.
Figures that are cheaper to read off than to keep are brought up to date when somebody asks:
`on_scrape`.

Labels are bounded: enums, names that stand in the configuration, methods that there are. What comes
from outside is a label only through a `Bounded`.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import prometheus_client
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    start_http_server,
    values,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import RestrictedRegistry

from chassis import log

SHARED_ENV: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The folder that all workers of one service count into; unset: there is one process."""
WORKER_ENV: Final = "COHABIT_EDGE_WORKER"
"""The number of this worker. The one that replaces it has the same, and counts on in its files."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OTHER: Final = "other"
MIB: Final = 1024 * 1024
_REFRESH_S = 0.5
"""Less than the patience of whoever asks: a driver that hangs must not hide all other figures."""
_FROM_THREAD_S = 1.0
SECONDS: Final = (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
"""Buckets of whatever waits for a model."""

if SHARED_ENV in os.environ and (_worker := os.environ.get(WORKER_ENV)):
    # Before the first metric is made, which is below. By number rather than by process id: files
    # are as many as there are workers, however often one is replaced.
    values.ValueClass = values.MultiProcessValue(lambda: _worker)  # type: ignore[no-untyped-call]
# The time at which a counter was made doubles its series and is of no use to anybody here.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

CALLS = Counter(
    "cohabit_grpc_calls_total",
    "Finished gRPC calls.",
    ["grpc_service", "grpc_method", "grpc_code", "reason"],
)
CALL_SECONDS = Histogram(
    "cohabit_grpc_call_seconds",
    "Duration of gRPC calls, streams from opening to end.",
    ["grpc_service", "grpc_method"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
)
SPANS = Counter(
    "cohabit_trace_spans_total", "Spans that the collector took, or did not.", ["outcome"]
)
CONFIGURATION_REFUSED = Gauge(
    "cohabit_configuration_refused",
    "1 while the configuration as it stands in its file cannot be used.",
    multiprocess_mode="livemax",
)
RESTART_DUE = Gauge(
    "cohabit_configuration_restart_due",
    "1 while keys have changed that take effect on a restart.",
    multiprocess_mode="livemax",
)
OPEN_CALLS = Gauge(
    "cohabit_grpc_open_calls",
    "gRPC calls in progress.",
    ["grpc_service", "grpc_method"],
    multiprocess_mode="livesum",
)

Refresh = Callable[[], Awaitable[None]]


class Bounded:
    """Names as label values: the first `most` of them, and `other` for all that come later."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        """The label's value."""
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


_refreshing: dict[Refresh, asyncio.AbstractEventLoop] = {}


def on_scrape(refresh: Refresh) -> Callable[[], None]:
    """Have `refresh` bring gauges up to date before they are read; call what comes back to end it.

    It runs on the event loop that runs now, side by side with others, and is given half a second.
    """
    _refreshing[refresh] = asyncio.get_running_loop()
    return lambda: _forget(refresh)


def _forget(refresh: Refresh) -> None:
    _refreshing.pop(refresh, None)


async def text() -> str:
    """The metrics of this process, or of all its fellow workers, in text format 0.0.4."""
    await _refresh()
    if values.ValueClass is values.MutexValue:
        return generate_latest(REGISTRY).decode()
    return await asyncio.to_thread(_of_all_workers)


def _of_all_workers() -> str:
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry).decode()


async def _refresh() -> None:
    here = asyncio.get_running_loop()
    ours = [one for one, loop in _refreshing.items() if loop is here]
    await asyncio.gather(*map(_refreshed, ours))


async def _refreshed(refresh: Refresh) -> None:
    try:
        async with asyncio.timeout(_REFRESH_S):
            await refresh()
    except Exception as error:  # what stands still in one corner must not hide all others
        log.get().warning("metrics not refreshed", error=f"{type(error).__name__}: {error}")


def worker_over(folder: Path, worker: int) -> None:
    """A worker has ended: what it held counts no more, what it has counted stays."""
    mark_process_dead(worker, str(folder))  # type: ignore[no-untyped-call]


class _Fresh(CollectorRegistry):
    """The metrics of this process, brought up to date first; for the thread of a port."""

    def collect(self) -> Iterable[Metric]:
        """As REGISTRY has it."""
        loop = next(iter(_refreshing.values()), None)
        if loop is not None and not loop.is_closed():
            done = threading.Event()
            asyncio.run_coroutine_threadsafe(_refresh(), loop).add_done_callback(
                lambda _: done.set()
            )
            done.wait(_FROM_THREAD_S)
        yield from REGISTRY.collect()

    def restricted_registry(self, names: Iterable[str]) -> RestrictedRegistry:
        """Some of them, as they stand."""
        return REGISTRY.restricted_registry(names)


def serve(listen: str) -> None:
    """Answer scrapes on `host:port`; an empty `listen` means none are wanted. Raises OSError."""
    if listen:
        host, _, port = listen.rpartition(":")
        start_http_server(int(port), host.strip("[]"), registry=_Fresh())
