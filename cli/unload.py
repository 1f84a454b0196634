"""`cohabit unload MODEL`: give a model's memory back, once what runs on it is over."""

import sys
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from cli.console import note
from cli.dial import INTERRUPTED, ConfigOption, Dialled, with_house
from cli.known import KeyArgument, asked_for
from cohabit.scheduler.v1 import scheduler_pb2 as pb

_MOST_DRAIN_S = 24 * 3600.0
_USUAL_DRAIN_S = 60.0
"""Room for what a service does unless told otherwise."""
_AFTER_S = 90.0
"""For the engine to end and the device to show the memory free."""


async def _unload(house: Dialled, model: str, drain_s: float | None, *, force: bool) -> None:
    # 0 on the wire is the service's own idea of a drain.
    drain_ms = 0 if drain_s is None else max(1, round(drain_s * 1000))
    asked = pb.UnloadModelRequest(model=model, drain_ms=drain_ms, force=force)
    within_s = (_USUAL_DRAIN_S if drain_s is None else drain_s) + _AFTER_S
    async with asked_for(house, model):
        await house.scheduler.UnloadModel(asked, timeout=within_s)


def command(
    model: KeyArgument,
    force: Annotated[
        bool, typer.Option("--force", help="End what still runs when the drain is over.")
    ] = False,
    drain_s: Annotated[
        float | None,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            min=0.0,
            max=_MOST_DRAIN_S,
            help="How long what runs may take to finish; the service's default otherwise.",
        ),
    ] = None,
    config_path: ConfigOption = None,
) -> None:
    """Unload a model; it takes nothing new and leaves when what runs on it is over."""
    console = Console(stderr=True)
    waiting = Text(f"waiting for {model} to leave")
    try:
        with console.status(waiting) if sys.stderr.isatty() else nullcontext():
            with_house(config_path, lambda house: _unload(house, model, drain_s, force=force))
    except KeyboardInterrupt:
        note(f"Gave up waiting; {model} may leave all the same: see `cohabit models`.")
        raise typer.Exit(INTERRUPTED) from None
    print(f"{model} is unloaded.")
