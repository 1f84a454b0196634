"""`cohabit keys`: what is asked for is understood here, and done in `shell`, when it is needed."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.dial import ConfigOption, JsonOption

app = typer.Typer(
    no_args_is_help=True, help="Make, list, change and remove the API keys that the edge takes."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key.")]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Default: edge.keys_file of the configuration."),
]


class TierChoice(StrEnum):
    """Tiers as a person types them."""

    BACKGROUND = "background"
    FREE = "free"
    SUB = "sub"
    PAID = "paid"


@app.command("add")
def add(
    name: Name,
    tier: Annotated[
        TierChoice | None, typer.Option(help="Its highest tier; default: edge.open_tier_ceiling.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="It may ask this model or family alone; may be repeated."),
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1)] = None,
    concurrent: Annotated[
        int | None, typer.Option(min=1, help="Requests in progress at once.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="A date, a time in UTC, or days from now: 90d.")
    ] = None,
    fairness_key: Annotated[
        str | None, typer.Option(help="Keys of one are one client; default: its name.")
    ] = None,
    signals: Annotated[
        bool,
        typer.Option(
            "--signals", help="For whoever watches: it reads /metrics, /status and /errors."
        ),
    ] = False,
    file: FileOption = None,
    config_path: ConfigOption = None,
) -> None:
    """Make a key and print it, once. The running edge takes it within a second or two.

    With --signals and no --model it may ask no model at all.
    """
    from cli.keys import shell  # noqa: PLC0415

    rights = {
        "tier": tier.value if tier else None,
        "models": models or ([] if signals else None),
        "requests_per_minute": requests_per_minute,
        "concurrent": concurrent,
        "expires": shell.moment(expires),
        "fairness_key": fairness_key,
        "signals": signals or None,
    }
    shell.add(shell.file_of(config_path, file), name, rights)


@app.command("list")
def show(
    file: FileOption = None, config_path: ConfigOption = None, json_wanted: JsonOption = False
) -> None:
    """Show which keys there are, and what they may do; never the keys."""
    from cli.keys import shell  # noqa: PLC0415

    shell.show(shell.file_of(config_path, file), as_json=json_wanted)


@app.command("disable")
def disable(name: Name, file: FileOption = None, config_path: ConfigOption = None) -> None:
    """Take a key no longer, until it is enabled. What runs ends as it would."""
    from cli.keys import shell  # noqa: PLC0415

    shell.enable(shell.file_of(config_path, file), name, disabled=True)


@app.command("enable")
def enable(name: Name, file: FileOption = None, config_path: ConfigOption = None) -> None:
    """Take a key that was disabled again."""
    from cli.keys import shell  # noqa: PLC0415

    shell.enable(shell.file_of(config_path, file), name, disabled=False)


@app.command("rotate")
def rotate(
    name: Name,
    finish: Annotated[
        bool, typer.Option("--finish", help="Take the former secret no longer.")
    ] = False,
    file: FileOption = None,
    config_path: ConfigOption = None,
) -> None:
    """Give a key a new secret and print it, once. The former one is taken until --finish."""
    from cli.keys import shell  # noqa: PLC0415

    path = shell.file_of(config_path, file)
    if finish:
        shell.finish(path, name)
    else:
        shell.rotate(path, name)


@app.command("remove")
def remove(name: Name, file: FileOption = None, config_path: ConfigOption = None) -> None:
    """Forget a key. Whoever gets its name later sees its jobs."""
    from cli.keys import shell  # noqa: PLC0415

    shell.remove(shell.file_of(config_path, file), name)
