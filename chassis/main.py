"""The frame of every service's `__main__`: arguments, configuration, logs, event loop.

    run_service("broker", BrokerConfig, start)

where `start(context)` is a coroutine that builds the service and serves until told to stop.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from chassis import config, log, metrics, tls_config, tracing
from chassis.following import Following
from chassis.loop import run
from chassis.process import die_with_parent
from chassis.server import CannotListen

C = TypeVar("C", bound=config.Section)


@dataclass(frozen=True, slots=True)
class Context(Generic[C]):
    """What a service is given to start with."""

    house: config.House
    own: C
    document: config.Document
    following: Following[C]
    """The configuration from here on."""

    @classmethod
    def of(cls, name: str, kind: type[C], document: config.Document) -> "Context[C]":
        """That of the service `name`. Raises ConfigError."""
        own = document.section(name, kind)
        return cls(document.house(), own, document, Following(name, kind, document))


def run_service(
    name: str,
    kind: type[C],
    start: Callable[[Context[C]], Awaitable[None]],
    *,
    module: str | None = None,
) -> None:
    """Read the configuration (exit 2 if it is wrong), then run `start` on uvloop to its end.

    `module` is what stands after `python -m`; default `services.<name>`.
    """
    die_with_parent()
    parser = argparse.ArgumentParser(prog=f"python -m {module or f'services.{name}'}")
    parser.add_argument("--config", type=Path, default=None, help="cohabit.yaml to use")
    path = parser.parse_args().config
    try:
        document = config.load(path)
        context = Context.of(name, kind, document)
        tls_config.adopt(document)
    except config.ConfigError as error:
        config.fail(error)
    log.configure(name, context.house.log_level)
    try:
        _serve_metrics(name, context.house)
        _trace(name, document)
        run(_following(context, start))
    except config.ConfigError as error:  # of a file that the service reads itself
        config.fail(error)
    except CannotListen as error:
        raise SystemExit(f"{name}: {error}") from None
    finally:
        tracing.close()


def _trace(name: str, document: config.Document) -> None:
    traces = document.house().traces
    try:
        tracing.configure(name, tracing.endpoint_of(traces.endpoint), traces.sample)
    except tracing.NoTracesError as error:
        if traces.endpoint:
            where = document.where(("traces", "endpoint"))
            config.fail(config.ConfigError(f"{where}: traces.endpoint: {error}"))
        # The environment may be meant for others.
        log.get().warning("no traces", why=str(error))


async def _following(context: Context[C], start: Callable[[Context[C]], Awaitable[None]]) -> None:
    following = asyncio.create_task(context.following.run())
    try:
        await start(context)
    finally:
        following.cancel()


def _serve_metrics(name: str, house: config.House) -> None:
    listen = house.metrics.get(name, "")
    try:
        metrics.serve(listen)
    except OSError as error:
        said = error.strerror or error
        raise CannotListen(f"metrics cannot be served on {listen}: {said}") from None
