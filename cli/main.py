"""The `cohabit` command: its subcommands, and how it fails."""

from importlib import metadata
from typing import Annotated

import typer

from cli import chat, leases, load, models, plan, pull, status, swap, unload, up
from cli.console import Refused, fail
from cli.jobs import command as jobs
from cli.keys import command as keys
from cli.pictures import cutout, paint
from cli.simulation import command as simulation

app = typer.Typer(
    name="cohabit",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.command)
app.command("status")(status.command)
app.command("models")(models.command)
app.command("load")(load.command)
app.command("unload")(unload.command)
app.command("swap")(swap.command)
app.command("plan")(plan.command)
app.command("leases")(leases.command)
app.command("pull")(pull.command)
app.command("chat")(chat.command)
app.command("paint")(paint.command)
app.command("cutout")(cutout.command)
app.command("jobs")(jobs.command)
app.add_typer(keys.app, name="keys")
app.command("simulate")(simulation.simulate)
app.add_typer(simulation.trace_app, name="trace")


def _show_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Many models living on one GPU: start the house, look at it, talk to it."""


@app.command("version")
def version() -> None:
    """Print the version."""
    print(metadata.version("cohabit"))


def main() -> None:
    """Run the command; a refusal is one sentence on stderr and exit status 1."""
    try:
        app()
    except Refused as error:
        fail(str(error))
