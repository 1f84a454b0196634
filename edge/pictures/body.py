"""The bodies of the routes that paint: OpenAI's fields, and those that the house has beside them.

The structs are what a JSON body decodes into, what the text fields of a form are converted into,
and what /openapi.json shows. Files of a form stand beside them, under the names of picture fields.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

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

MOST_PICTURES = 10
MOST_PROMPT_BYTES = 32 * 1024
MOST_REFERENCES = 8

SamplerName = Literal[
    "euler",
    "euler_a",
    "heun",
    "dpm2",
    "dpmpp_2s_a",
    "dpmpp_2m",
    "dpmpp_2m_v2",
    "ipndm",
    "ipndm_v",
    "lcm",
    "ddim_trailing",
    "tcd",
]
"""As cohabit.diffusion.v1.Sampler names them, in small letters."""
SchedulerName = Literal[
    "discrete",
    "karras",
    "exponential",
    "ays",
    "gits",
    "sgm_uniform",
    "simple",
    "smoothstep",
]
"""As cohabit.diffusion.v1.NoiseScheduler names them, in small letters."""
TilingName = Literal["auto", "on", "off"]
FormatName = Literal["png", "webp", "jpeg"]
QualityName = Literal["low", "medium", "high", "xhigh", "max", "auto", "standard", "hd"]


class ImageUrl(msgspec.Struct, forbid_unknown_fields=True):
    """A picture by its URL, which may be a data URL."""

    image_url: Annotated[str, Meta(min_length=1)]


Picture = Annotated[str, Meta(min_length=1)] | ImageUrl
"""Base64, a data URL, or an http(s) URL. In a form it may be a file instead."""


class LoraWish(msgspec.Struct, forbid_unknown_fields=True):
    """A LoRA by its id, or (from this machine, where it is allowed) by its path."""

    lora_id: Name | None = None
    filename: Name | None = None
    """The file in the folder of that id; none: the only one."""
    path: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    scale: Scale | None = None
    """None: 1."""


class PaintBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What every route that paints takes."""

    prompt: Prompt
    model: Name | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_PICTURES)] | None = None
    size: Size | None = None
    width: Side | None = None
    height: Side | None = None
    output_format: FormatName | None = None
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None
    """Quality of WebP and JPEG."""
    response_format: Literal["b64_json", "url"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    stream: bool | None = None
    partial_images: Annotated[int, Meta(ge=0, le=3)] | None = None
    quality: Annotated[QualityName, Meta(description="Told again, and of no effect.")] | None = None
    complexity: Ignored = None
    moderation: Ignored = None
    style: Ignored = None
    safety_identifier: Ignored = None
    user: Ignored = None
    # Beyond OpenAI's.
    negative_prompt: Negative | None = None
    seed: Seed | None = None
    """-1: as none, at random. Picture i of several takes seed + i."""
    steps: Steps | None = None
    guidance: Guidance | None = None
    distilled_guidance: Guidance | None = None
    image_guidance: Guidance | None = None
    sampler: SamplerName | None = None
    scheduler: SchedulerName | None = None
    eta: Share | None = None
    clip_skip: Annotated[int, Meta(ge=0, le=12)] | None = None
    loras: Annotated[list[LoraWish], Meta(max_length=MOST_LORAS)] | None = None
    vae_tiling: TilingName | None = None
    no_result_cache: bool = False


class GenerationBody(PaintBody, kw_only=True):
    """A picture from a prompt, and where the model can, from pictures."""

    image: Picture | None = None
    """To start from instead of noise."""
    strength: Share | None = None
    """How far to leave `image`: 0 keeps it, 1 ignores it."""
    reference_images: Annotated[list[Picture], Meta(max_length=MOST_REFERENCES)] | None = None
    """To look at."""


class EditBody(PaintBody, kw_only=True):
    """Pictures to edit, as `image`, or as OpenAI has it in JSON, as `images`."""

    image: Picture | list[Picture] | None = None
    images: list[Picture] | None = None
    mask: Picture | None = None
    """Where the first picture is painted over."""
    strength: Share | None = None
    """How far to leave the first picture: 0 keeps it, 1 ignores it."""
    input_fidelity: Ignored = None


class BackgroundBody(PaintBody, kw_only=True):
    """A backdrop from a prompt."""


class StyleBody(PaintBody, kw_only=True):
    """A backdrop in the manner of another: its light and its colours are kept."""

    image: Picture | None = None
    strength: Share | None = None
    """How far to leave `image`: 0 keeps it, 1 ignores it."""
