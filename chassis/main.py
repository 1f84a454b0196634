"""The frame of every service's `__main__`: arguments, configuration, logs, event loop.

    run_service("broker", BrokerConfig, start)

where `start(context)` is a coroutine that builds the service and serves until told to stop.
"""

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from chassis import config, log, metrics
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
        context = Context(document.house(), document.section(name, kind), document)
    except config.ConfigError as error:
        config.fail(error)
    log.configure(name, context.house.log_level)
    try:
        _serve_metrics(name, context.house)
        run(start(context))
    except config.ConfigError as error:  # of a file that the service reads itself
        config.fail(error)
    except CannotListen as error:
        raise SystemExit(f"{name}: {error}") from None


def _serve_metrics(name: str, house: config.House) -> None:
    listen = house.metrics.get(name, "")
    try:
        metrics.serve(listen)
    except OSError as error:
        said = error.strerror or error
        raise CannotListen(f"metrics cannot be served on {listen}: {said}") from None
