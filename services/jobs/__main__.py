"""Wiring of the job service: configuration → store, files, calls → shell → server."""

import asyncio
import os
from pathlib import Path

from chassis import log
from chassis.clock import steady_ms
from chassis.config import House
from chassis.main import Context, run_service
from chassis.server import Server, run, service_name
from cohabit.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from imaging.values import Encoding, Format
from services.jobs import metrics
from services.jobs.clients import Addresses, Calls
from services.jobs.config import JobsConfig
from services.jobs.core.book import Book
from services.jobs.core.retries import Patience
from services.jobs.core.values import Limits
from services.jobs.disk import Disk
from services.jobs.files import Files
from services.jobs.runner import Runner
from services.jobs.servicer import JobServicer
from services.jobs.shell import Shell
from services.jobs.store import Store, StoreError


def folder_of(house: House, config: JobsConfig) -> Path:
    """Where jobs are kept."""
    return house.state_dir / (config.dir or "jobs")


def book_of(config: JobsConfig) -> Book:
    """An empty book with the configured bounds."""
    limits = Limits(
        running=config.running,
        open_jobs=config.queue_limit,
        jobs=config.max_jobs,
        bytes=config.max_mib << 20,
    )
    patience = Patience(
        breakdowns=config.attempts,
        age_ms=round(config.retry_for_s * 1000),
        first_ms=round(config.retry_first_s * 1000),
        most_ms=round(config.retry_most_s * 1000),
    )
    return Book(limits, patience)


async def start(context: Context[JobsConfig]) -> None:
    """Serve JobService until told to stop."""
    house, own = context.house, context.own
    folder = folder_of(house, own)
    store, files = Store(folder), Files(folder / "files")
    calls = Calls(
        Addresses(
            scheduler=house.address_of("scheduler"),
            diffusion=house.address_of("diffusion"),
            matte=house.address_of("matte"),
        ),
        own.call_s,
    )
    encoding = Encoding(Format[own.format.upper()], own.quality)
    runner = Runner(calls, files, encoding, own.matte_model)
    book = book_of(own)
    shell = Shell(book, Disk(store, files), runner, steady_ms)
    kept = await shell.start()
    log.get().info("jobs taken up", jobs=len(list(shell.board.newest_first())), not_ended=kept)
    server = Server((service_name(jobs_pb2, "JobService"),), drain_s=2.0)
    server.leaving.append(shell.board.close)
    server.closing.push_async_callback(calls.close)
    server.closing.push_async_callback(shell.close)
    server.closing.callback(metrics.follow(book))
    jobs_pb2_grpc.add_JobServiceServicer_to_server(JobServicer(shell, calls, own), server.grpc)
    ending = asyncio.create_task(_end_when_broken(shell))
    server.closing.callback(ending.cancel)
    await run(server, house.listen_of("jobs"))


async def _end_when_broken(shell: Shell) -> None:
    """Whoever watches over this process starts it anew, from what is on the disk."""
    await shell.broken.wait()
    os._exit(70)  # at once: its disk may never answer again


def main() -> None:
    """Run the service; a store that cannot be used is said in one line."""
    try:
        run_service("jobs", JobsConfig, start)
    except StoreError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
