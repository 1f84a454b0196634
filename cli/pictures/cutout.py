"""`cohabit cutout PICTURE --output FILE`: the subject of a picture, to a file.

Ctrl-C gives it up, at the engine too.
"""

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.console import note
from cli.dial import INTERRUPTED, ConfigOption, JsonOption, with_house
from cli.pictures.paint import ForceOption, OutputOption

if TYPE_CHECKING:
    from cohabit.matte.v1.matte_pb2 import RemoveBackgroundResponse

# What asks for cutouts is imported when it is needed: `cohabit --help` does not.


def command(
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="The picture's file.")],
    output: OutputOption,
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="The matting model; the configured default otherwise."),
    ] = "",
    background: Annotated[
        str | None,
        typer.Option(
            metavar="COLOUR|FILE|estimated",
            help="What stands behind the subject: a colour, a picture's path (./sea.jpg), or the "
            "picture's own background with the subject filled in. Transparent otherwise.",
        ),
    ] = None,
    matte: Annotated[bool, typer.Option("--matte", help="Write the matte alone.")] = False,
    force: ForceOption = False,
    config_path: ConfigOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Cut the subject out of a picture, into a file."""
    from rich.console import Console  # noqa: PLC0415

    from cli.new_file import check_free, new_file  # noqa: PLC0415
    from cli.pictures.cutting import cut, request_of  # noqa: PLC0415
    from cli.pictures.files import format_of  # noqa: PLC0415

    request = request_of(
        picture, format_of(output), model=model, background=background, matte=matte
    )
    check_free(output, force=force)
    began = time.monotonic()
    status = Console(stderr=True).status("cutting out")
    try:
        with status if sys.stderr.isatty() else nullcontext():
            answer = with_house(config_path, lambda house: cut(house, request))
    except KeyboardInterrupt:
        note("Gave the cutout up.")
        raise typer.Exit(INTERRUPTED) from None
    with new_file(output, force=force) as out:
        out.write((answer.matte if matte else answer.image).data)
    took_s = time.monotonic() - began
    print(as_json(answer, output, took_s) if json_wanted else line(answer, output, took_s))


def line(answer: "RemoveBackgroundResponse", output: Path, took_s: float) -> str:
    """What was made, for people."""
    size = f"{answer.width_px}x{answer.height_px}"
    return f"{output}: {size}, {answer.coverage:.0%} of it subject, {took_s:.1f} s"


def as_json(answer: "RemoveBackgroundResponse", output: Path, took_s: float) -> str:
    """What was made, for scripts."""
    written = answer.image if answer.image.data else answer.matte
    return json.dumps(
        {
            "file": str(output),
            "mime_type": written.mime_type,
            "width_px": answer.width_px,
            "height_px": answer.height_px,
            "coverage": round(answer.coverage, 4),
            "device": answer.device,
            "took_s": round(took_s, 3),
        },
        indent=2,
    )
