"""`cohabit swap MODEL FILE`: another file for a model. Ctrl-C gives the swap up.

What runs on the model finishes first. If the new file cannot be loaded, the former one comes back.
"""

import time
from contextlib import aclosing
from typing import Annotated

import typer

from cli.console import Refused, note
from cli.dial import INTERRUPTED, ConfigOption, Dialled, answered, heard, with_house
from cli.known import KeyArgument
from cli.load import Tell, told
from cli.settings import SetOption, host_of, settings_of
from cohabit.models.v1 import models_pb2 as pb

_MOST_DRAIN_S = 24 * 3600.0
_SILENCE_S = 3600.0
"""A swap says nothing while it waits for what runs, and for its turn to be loaded."""

_WORDS = {
    pb.SwapModelResponse.PHASE_DRAINING: "waiting for what runs",
    pb.SwapModelResponse.PHASE_LOADING: "loading",
    pb.SwapModelResponse.PHASE_RESTORING: "the former file comes back",
}


async def _swap(house: Dialled, request: pb.SwapModelRequest, tell: Tell) -> None:
    async with host_of(house, request.key) as (service, stub):
        with answered(service):
            async with aclosing(heard(stub.SwapModel(request), _SILENCE_S)) as steps:
                async for step in steps:
                    if step.phase == pb.SwapModelResponse.PHASE_DONE:
                        return
                    tell(_WORDS.get(step.phase, "swapping"), step.load_progress)
    raise Refused(
        f"The swap of {request.key} ended early; see what became of it with `cohabit models`."
    )


def command(
    model: KeyArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file in the service's swap directory.")
    ],
    set_: SetOption = None,
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
    """Put another file in place of a model's; what runs on it finishes first."""
    began = time.monotonic()
    request = pb.SwapModelRequest(
        key=model,
        path=file,
        overrides=settings_of(set_ or ()),
        drain_ms=0 if drain_s is None else max(1, round(drain_s * 1000)),
    )
    try:
        with told(model) as tell:
            with_house(config_path, lambda house: _swap(house, request, tell))
    except KeyboardInterrupt:
        note(f"Gave the swap up; {model} goes on with its former file.")
        raise typer.Exit(INTERRUPTED) from None
    print(f"{model} serves {file} after {time.monotonic() - began:.1f} s.")
