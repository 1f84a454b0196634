"""The signals of the edge, wired: where its workers count and write, and what routes show it."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from fastapi import FastAPI
from starlette.responses import PlainTextResponse, Response

from chassis.metrics import CONTENT_TYPE, SHARED_ENV, WORKER_ENV
from edge.body import MIB
from edge.config import EdgeConfig
from edge.documenting import answers
from edge.signals.access_log import KEPT_FILES, Write, to_files, to_stderr
from edge.signals.failures import FailureList, Failures
from edge.signals.gathering import Gathering, gathering
from edge.standing import Standing


@dataclass(frozen=True, slots=True)
class Signals:
    """What there is to be seen by."""

    gathering: Gathering
    failures: Failures
    write: Write
    """Takes the lines of requests."""

    def add_to(self, app: FastAPI) -> None:
        """The routes that show it."""

        @app.get(
            "/metrics",
            tags=["probes"],
            summary="Read the metrics of the house",
            response_class=PlainTextResponse,
            response_description="Of every service that answers, in Prometheus' text format.",
        )
        async def metrics() -> Response:
            return Response(await self.gathering.text(), headers={"content-type": CONTENT_TYPE})

        @app.get(
            "/errors",
            tags=["probes"],
            summary="See what failed last",
            responses=answers(FailureList, "The last 32 answers of 5xx, the newest first."),
        )
        async def errors() -> Response:
            latest = await asyncio.to_thread(self.failures.latest)
            return Response(msgspec.json.encode(FailureList(latest)), media_type="application/json")


@asynccontextmanager
async def open_signals(
    config: EdgeConfig, services: Mapping[str, str], standing: Standing, version: str
) -> AsyncIterator[Signals]:
    """Open until the block ends; `services`: the gRPC targets of all there are, by name.

    Raises ConfigError when the access log cannot be written.
    """
    folder, worker = os.environ.get(SHARED_ENV), os.environ.get(WORKER_ENV, "0")
    async with AsyncExitStack() as stack:
        write: Write = to_stderr
        if config.access_log_file is not None:
            path = _own_file(config.access_log_file, worker, config.workers)
            most_bytes = config.access_log_mib * MIB // (KEPT_FILES * config.workers)
            write = stack.enter_context(to_files(path, most_bytes))
        gathered = await stack.enter_async_context(gathering(services, standing, version))
        failures = Failures(Path(folder) if folder else None, worker)
        yield Signals(gathered, failures, write)


def _own_file(path: Path, worker: str, workers: int) -> Path:
    """A file cannot be rotated by several processes: each has its own."""
    return path if workers == 1 else path.with_name(f"{path.stem}.{worker}{path.suffix}")
