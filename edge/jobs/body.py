"""The bodies that hand jobs in. Every one may come as a form, where pictures are files."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta

from edge.cutouts.fields import CutoutFields, MatteName, OutputFields, PictureText
from edge.pictures.fields import (
    MOST_LORAS,
    Guidance,
    Ignored,
    Name,
    Negative,
    Prompt,
    Scale,
    Seed,
    Share,
    Side,
    Size,
    Steps,
)

MOST_PICTURES = 64
MOST_KEEP_S = 10 * 365 * 24 * 3600
MOST_KEY_CHARS = 128

KEY_RULE = "The same request with the same key is the same job."
KEY_PATTERN = "^[!-~]([ -~]*[!-~])?$"
"""Of ASCII; HTTP takes the spaces around a header off."""

Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MOST_KEY_CHARS,
        pattern=KEY_PATTERN,
        description=f"{KEY_RULE} The header `idempotency-key` may say it, too.",
    ),
]
Keep = Annotated[
    int, Meta(ge=1, le=MOST_KEEP_S, description="Keep job and results for so many seconds.")
]


class JobLora(msgspec.Struct, forbid_unknown_fields=True):
    """An adapter on top of the model's weights."""

    lora_id: Name
    filename: Annotated[str, Meta(max_length=256)] = ""
    """Empty: the only file that `lora_id` names."""
    scale: Scale | None = None
    """1 when left out."""


Loras = Annotated[list[JobLora], Meta(max_length=MOST_LORAS)]


class ImageJobBody(OutputFields, kw_only=True):
    """Pictures to be made of a prompt. What is left out takes the model's default."""

    prompt: Prompt
    model: Name | None = None
    """May be left out where the house has one, or a default."""
    negative_prompt: Negative = ""
    size: Size | None = None
    width: Side | None = None
    height: Side | None = None
    steps: Steps | None = None
    guidance: Guidance | None = None
    seed: Seed | None = None
    """Picture i takes `seed` + i; drawn when left out."""
    loras: Loras = msgspec.field(default_factory=list)
    image: PictureText | None = None
    """To start from."""
    strength: Share | None = None
    """How far to leave `image`."""
    n: Annotated[int, Meta(ge=1, le=MOST_PICTURES)] = 1
    idempotency_key: Key | None = None
    keep_s: Keep | None = None
    user: Ignored = UNSET


class BackdropFields(CutoutFields, kw_only=True):
    """A cutout that may stand on a picture yet to be made."""

    background_prompt: Prompt | None = None
    """A backdrop to be made for the subject."""
    background_negative_prompt: Negative = ""
    background_model: Name | None = None
    """Makes the backdrop."""
    background_steps: Steps | None = None
    background_guidance: Guidance | None = None
    background_seed: Seed | None = None
    background_strength: Share | None = None
    """Above 0: start from the background that was removed and leave it this far, so that the new
    one keeps its light."""
    idempotency_key: Key | None = None
    keep_s: Keep | None = None
    user: Ignored = UNSET


class RemovalJobBody(BackdropFields, kw_only=True):
    """A picture to cut the subject out of: exactly one of `image`, `image_url` and `file`."""

    model: MatteName | None = None
    image: PictureText | None = None
    image_url: PictureText | None = None
    """The same under another name."""
    file: PictureText | None = None
    """The same under another name."""


class ForegroundJobBody(BackdropFields, kw_only=True):
    """A subject to be made of a prompt, and cut out."""

    # Fields of ImageJobBody again: msgspec lets a struct have them from one line of bases alone.
    prompt: Prompt
    model: Name | None = None
    """Makes the picture; may be left out where the house has one, or a default."""
    negative_prompt: Negative = ""
    size: Size | None = None
    width: Side | None = None
    height: Side | None = None
    steps: Steps | None = None
    guidance: Guidance | None = None
    seed: Seed | None = None
    """Drawn when left out."""
    loras: Loras = msgspec.field(default_factory=list)
    image: PictureText | None = None
    """To start from."""
    strength: Share | None = None
    """How far to leave `image`."""
    matte_model: MatteName | None = None
    return_source: bool = False
    """The generated picture, too."""
