"""`cohabit status`: services, permits, queues, models, leases and device memory, now."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from chassis.config import ConfigError, fail
from cli import house
from cli.answers import as_json, ask
from cli.tables import show


def command(
    config_path: Annotated[
        Path | None, typer.Option("--config", help="cohabit.yaml to use.")
    ] = None,
    json_wanted: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Show what runs, what waits and who holds memory; exit 1 when something is down or failed."""
    try:
        whole = house.load(config_path)
    except ConfigError as error:
        fail(error)
    answers = asyncio.run(ask(whole))
    if json_wanted:
        print(as_json(answers))
    else:
        show(answers)
    if not answers.well:
        raise typer.Exit(1)
