"""A picture from a prompt: what is asked, what is told on the way, what came of it.

The model service waits for the turn itself; when the caller leaves, the picture is given up.
"""

import re
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from math import isfinite

from chassis.errors import Fault, Reason
from cli.console import Refused, printable
from cli.dial import Dialled, heard
from cli.load import Tell
from cli.pictures.files import Format
from cli.pictures.waiting import waiting
from cli.reach import Service, check_model, reached
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.diffusion.v1 import diffusion_pb2_grpc

DIFFUSION = Service("diffusion", "paints", "docs/guides/pictures.md")
_LONGEST_S = 3600.0
"""Of a request with its wait, as its service bounds it."""
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})", re.ASCII)
OPTIONS = {
    "model": "MODEL",
    "prompt": "PROMPT",
    "negative_prompt": "--negative",
    "width_px": "--size",
    "height_px": "--size",
    "steps": "--steps",
    "seed": "--seed",
    "loras": "--lora",
}
_PHASES = {
    pb.GenerateResponse.PHASE_CONDITION: "reading the prompt",
    pb.GenerateResponse.PHASE_DENOISE: "step {} of {}",
    pb.GenerateResponse.PHASE_DECODE: "to pixels",
    pb.GenerateResponse.PHASE_ENCODE: "to a file",
}


@dataclass(slots=True)
class Painted:
    """A picture, and with which settings it was made."""

    started: pb.GenerateResponse.Started = field(default_factory=pb.GenerateResponse.Started)
    image: pb.GenerateResponse.Image = field(default_factory=pb.GenerateResponse.Image)


def size_of(written: str) -> tuple[int, int]:
    """Width and height in pixels, of e.g. "512x512". Raises Refused."""
    found = _SIZE.fullmatch(written)
    if found is None or not int(found[1]) or not int(found[2]):
        raise Refused(f"'{printable(written)}' is no size; write WIDTHxHEIGHT, e.g. 512x512.")
    return int(found[1]), int(found[2])


def lora_of(written: str) -> pb.Lora:
    """A LoRA of e.g. "ink:0.8", or "ink" as it is. Raises Refused."""
    name, colon, scale = written.rpartition(":")
    if not colon:
        name, scale = written, "1"
    try:
        figure = float(scale)
    except ValueError:
        figure = float("nan")
    if not name or not isfinite(figure):
        raise Refused(f"'{printable(written)}' is no LoRA; write ID or ID:SCALE, e.g. ink:0.8.")
    return pb.Lora(lora_id=name, scale=figure)


def request_of(
    model: str,
    prompt: str,
    form: Format,
    *,
    negative: str = "",
    size: str | None = None,
    steps: int | None = None,
    seed: int | None = None,
    loras: Sequence[str] = (),
) -> pb.GenerateRequest:
    """What is asked of the service. Raises Refused."""
    width_px, height_px = size_of(size) if size else (0, 0)
    request = pb.GenerateRequest(
        model=model,
        prompt=prompt,
        negative_prompt=negative,
        width_px=width_px,
        height_px=height_px,
        steps=steps or 0,
        loras=map(lora_of, loras),
        output=pb.ImageOutput(format=pb.ImageFormat.Value(f"IMAGE_FORMAT_{form}")),
    )
    if seed is not None:
        request.seed = seed
    return request


def words(progress: pb.GenerateResponse.Progress) -> tuple[str, float]:
    """How far a picture is, in words and as a share of its steps."""
    said = _PHASES.get(progress.phase, "painting")
    done = progress.done_steps / progress.total_steps if progress.total_steps else 0.0
    match progress.phase:
        case pb.GenerateResponse.PHASE_DENOISE:
            return said.format(progress.done_steps, progress.total_steps), done
        case pb.GenerateResponse.PHASE_DECODE | pb.GenerateResponse.PHASE_ENCODE:
            return said, 1.0
    return said, 0.0


async def paint(house: Dialled, request: pb.GenerateRequest, tell: Tell) -> Painted:
    """The picture. Raises Refused."""
    painted, done = Painted(), False
    async with reached(house, DIFFUSION, OPTIONS) as channel:
        await check_model(house, DIFFUSION, request.model)
        call = diffusion_pb2_grpc.DiffusionServiceStub(channel).Generate(
            request, timeout=_LONGEST_S
        )
        async with (
            waiting(house, request.model, tell) as begun,
            aclosing(heard(call, _LONGEST_S)) as events,
        ):
            async for event in events:
                begun.set()
                match event.WhichOneof("event"):
                    case "started":
                        painted.started = event.started
                    case "progress":
                        tell(*words(event.progress))
                    case "image":
                        painted.image = event.image
                    case "finish":
                        done = True
        if not done or not painted.image.image.data:
            raise Fault(Reason.ENGINE_CRASHED, "The picture ended before it was there; try again.")
    return painted
