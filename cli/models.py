"""`cohabit models`: the models, who runs and waits on them, and whose the card's memory is.

A page that follows what happens on a terminal; printed once elsewhere.
"""

import sys
import time
from typing import Annotated

import typer

from cli.dial import ConfigOption, Dialled, JsonOption, with_house
from cli.live import Screen
from cli.model_page import sections
from cli.page import page_console, print_page
from cli.sight import as_json, look

_NARROWEST = 120
"""Columns of the page where there is no terminal to ask."""


async def _live(house: Dialled) -> None:
    await Screen(house, await look(house)).show()


def command(
    config_path: ConfigOption = None,
    json_wanted: JsonOption = False,
    once: Annotated[bool, typer.Option("--once", help="Print the page once and end.")] = False,
) -> None:
    """Show the models, who runs and waits on them, who leaves next, and whose the memory is.

    On a terminal the page stays and follows what happens; Ctrl-C ends it.
    """
    if sys.stdout.isatty() and not once and not json_wanted:
        try:
            with_house(config_path, _live)
        except KeyboardInterrupt:
            raise typer.Exit from None
    sight = with_house(config_path, look)
    if json_wanted:
        print(as_json(sight))
    else:
        console = page_console(_NARROWEST)
        print_page(sections(sight, time.time() * 1000, console.width), console)
    if sight.troubles:
        raise typer.Exit(1)
