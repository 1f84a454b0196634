"""The bodies of the routes that paint: OpenAI's fields, and those that the house has beside them.

The structs are what a JSON body decodes into, what the text fields of a form are converted into,
and what /openapi.json shows. Files of a form stand beside them, under the names of picture fields.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MOST_PICTURES = 10
MOST_PROMPT_BYTES = 32 * 1024
MOST_REFERENCES = 8
_MOST_SIDE_PX = 16_384
_MOST_WORDS = 32 * 1024

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

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Side = Annotated[int, Meta(ge=1, le=_MOST_SIDE_PX)]
_Size = Annotated[
    str,
    Meta(
        pattern=r"^(auto|[1-9][0-9]{0,4}x[1-9][0-9]{0,4})$",
        description="`WIDTHxHEIGHT`; `auto`: of the picture that is started from, or the model's.",
    ),
]
_Guidance = Annotated[float, Meta(ge=0, le=30)]
_Part = Annotated[float, Meta(ge=0, le=1)]
_Ignored = Annotated[Any, Meta(description="Accepted and ignored.")]


class ImageUrl(msgspec.Struct, forbid_unknown_fields=True):
    """A picture by its URL, which may be a data URL."""

    image_url: Annotated[str, Meta(min_length=1)]


Picture = Annotated[str, Meta(min_length=1)] | ImageUrl
"""Base64, a data URL, or an http(s) URL. In a form it may be a file instead."""
IN_JSON = frozenset(("loras",))
"""Fields that a form tells as JSON."""


class LoraWish(msgspec.Struct, forbid_unknown_fields=True):
    """A LoRA by its id, or (from this machine, where it is allowed) by its path."""

    lora_id: _Name | None = None
    filename: _Name | None = None
    """The file in the folder of that id; none: the only one."""
    path: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    scale: Annotated[float, Meta(ge=-4, le=4)] | None = None
    """None: 1."""


class PaintBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What every route that paints takes."""

    prompt: Annotated[str, Meta(min_length=1, max_length=_MOST_WORDS)]
    model: _Name | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_PICTURES)] | None = None
    size: _Size | None = None
    width: _Side | None = None
    height: _Side | None = None
    output_format: FormatName | None = None
    output_compression: Annotated[int, Meta(ge=0, le=100)] | None = None
    """Quality of WebP and JPEG."""
    response_format: Literal["b64_json", "url"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    stream: bool | None = None
    partial_images: Annotated[int, Meta(ge=0, le=3)] | None = None
    quality: Annotated[QualityName, Meta(description="Told again, and of no effect.")] | None = None
    complexity: _Ignored = None
    moderation: _Ignored = None
    style: _Ignored = None
    safety_identifier: _Ignored = None
    user: _Ignored = None
    # Beyond OpenAI's.
    negative_prompt: Annotated[str, Meta(max_length=_MOST_WORDS)] | None = None
    seed: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    """-1: as none, at random. Picture i of several takes seed + i."""
    steps: Annotated[int, Meta(ge=1, le=150)] | None = None
    guidance: _Guidance | None = None
    distilled_guidance: _Guidance | None = None
    image_guidance: _Guidance | None = None
    sampler: SamplerName | None = None
    scheduler: SchedulerName | None = None
    eta: _Part | None = None
    clip_skip: Annotated[int, Meta(ge=0, le=12)] | None = None
    loras: Annotated[list[LoraWish], Meta(max_length=8)] | None = None
    vae_tiling: TilingName | None = None
    no_result_cache: bool = False


class GenerationBody(PaintBody, kw_only=True):
    """A picture from a prompt, and where the model can, from pictures."""

    image: Picture | None = None
    """To start from instead of noise."""
    strength: _Part | None = None
    """How far to leave `image`: 0 keeps it, 1 ignores it."""
    reference_images: Annotated[list[Picture], Meta(max_length=MOST_REFERENCES)] | None = None
    """To look at."""


class EditBody(PaintBody, kw_only=True):
    """Pictures to edit, as `image`, or as OpenAI has it in JSON, as `images`."""

    image: Picture | list[Picture] | None = None
    images: list[Picture] | None = None
    mask: Picture | None = None
    """Where the first picture is painted over."""
    strength: _Part | None = None
    """How far to leave the first picture: 0 keeps it, 1 ignores it."""
    input_fidelity: _Ignored = None


class BackgroundBody(PaintBody, kw_only=True):
    """A backdrop from a prompt."""


class StyleBody(PaintBody, kw_only=True):
    """A backdrop in the manner of another: its light and its colours are kept."""

    image: Picture | None = None
    strength: _Part | None = None
    """How far to leave `image`: 0 keeps it, 1 ignores it."""
