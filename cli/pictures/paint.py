"""`cohabit paint MODEL PROMPT --output FILE`: a picture from a prompt, to a file.

A bar on a terminal, one line when it is done. Ctrl-C gives the picture up, at the engine too.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.console import note
from cli.dial import INTERRUPTED, ConfigOption, JsonOption, with_house
from cli.known import KeyArgument

if TYPE_CHECKING:
    from cli.pictures.painting import Painted

# What asks for pictures is imported when it is needed: `cohabit --help` does not.

_MOST_SEED = 2**63 - 1
_MOST_STEPS = 150

OutputOption = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help="A .png, .webp or .jpg file to write."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Write over a file that exists.")]


def command(
    model: KeyArgument,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to paint.")],
    output: OutputOption,
    size: Annotated[
        str | None,
        typer.Option(metavar="WIDTHxHEIGHT", help="In pixels; the model's default otherwise."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=_MOST_SEED, help="The same seed, the same picture.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, max=_MOST_STEPS, help="Denoise steps; the model's default otherwise."),
    ] = None,
    negative: Annotated[str, typer.Option(metavar="TEXT", help="What to avoid.")] = "",
    loras: Annotated[
        list[str] | None,
        typer.Option("--lora", metavar="ID[:SCALE]", help="A LoRA to apply; may be repeated."),
    ] = None,
    force: ForceOption = False,
    config_path: ConfigOption = None,
    json_wanted: JsonOption = False,
) -> None:
    """Paint a picture into a file."""
    from cli.load import told  # noqa: PLC0415
    from cli.new_file import check_free, new_file  # noqa: PLC0415
    from cli.pictures.files import format_of  # noqa: PLC0415
    from cli.pictures.painting import paint, request_of  # noqa: PLC0415

    request = request_of(
        model,
        prompt,
        format_of(output),
        negative=negative,
        size=size,
        steps=steps,
        seed=seed,
        loras=loras or (),
    )
    check_free(output, force=force)
    began = time.monotonic()
    try:
        with told(model) as tell:
            painted = with_house(config_path, lambda house: paint(house, request, tell))
    except KeyboardInterrupt:
        note("Gave the picture up.")
        raise typer.Exit(INTERRUPTED) from None
    with new_file(output, force=force) as out:
        out.write(painted.image.image.data)
    took_s = time.monotonic() - began
    print(as_json(painted, model, output, took_s) if json_wanted else line(painted, output, took_s))


def line(painted: "Painted", output: Path, took_s: float) -> str:
    """What was made, for people."""
    image, started = painted.image, painted.started
    rounded = " (rounded to what the model takes)" if started.size_rounded else ""
    made = f"{image.width_px}x{image.height_px}{rounded}, seed {image.seed}"
    return f"{output}: {made}, {started.steps} steps, {took_s:.1f} s"


def as_json(painted: "Painted", model: str, output: Path, took_s: float) -> str:
    """What was made, for scripts."""
    from cohabit.diffusion.v1 import diffusion_pb2 as pb  # noqa: PLC0415

    image, started = painted.image, painted.started
    origin = pb.ImageOrigin.Name(image.origin).removeprefix("IMAGE_ORIGIN_").lower()
    return json.dumps(
        {
            "file": str(output),
            "mime_type": image.image.mime_type,
            "model": model,
            "width_px": image.width_px,
            "height_px": image.height_px,
            "size_rounded": started.size_rounded,
            "seed": image.seed,
            "steps": started.steps,
            "guidance": started.guidance,
            "origin": origin,
            "took_s": round(took_s, 3),
        },
        indent=2,
    )
