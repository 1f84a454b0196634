"""What an engine of diffusion models is made with.

One frozen value that travels to the engine process as JSON. Nothing heavy is imported here: the
model service, the engine and tests all read it. Which values a family has is `families`' to say.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from services.diffusion.core.peak import Growth, PeakProfile

FamilyName = Literal[
    "sd1", "sd2", "sdxl", "flux", "chroma", "qwen-image", "z-image", "ovis-image", "wan"
]
Role = Literal[
    "model",
    "diffusion_model",
    "vae",
    "taesd",
    "clip_l",
    "clip_g",
    "t5xxl",
    "llm",
    "llm_vision",
]
"""What a file is, as the native library's context names it; `model` holds all parts in one."""
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
"""In the order of cohabit.diffusion.v1.Sampler, from 1."""
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
"""In the order of cohabit.diffusion.v1.NoiseScheduler, from 1."""
TilingName = Literal["auto", "on", "off"]
FormatName = Literal["png", "webp", "jpeg", "ppm"]

ROLES: tuple[Role, ...] = get_args(Role)
MOST_BATCH = 8
MOST_STEPS = 150
MOST_CLIP_SKIP = 12
MOST_GUIDANCE = 30.0


def default_threads() -> int:
    """Every core: while a picture is made nothing else of this engine runs."""
    return max(1, len(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a request takes where it says nothing."""

    steps: int = 20
    guidance: float = 7.0
    distilled_guidance: float = 3.5
    sampler: SamplerName = "euler_a"
    scheduler: SchedulerName = "discrete"
    width_px: int = 512
    height_px: int = 512
    clip_skip: int = 0
    """0: as the native library finds right for the model."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Which sizes a model accepts."""

    multiple_px: int = 64
    """Both sides are rounded up to a multiple of this."""
    min_side_px: int = 64
    max_side_px: int = 4096
    max_px: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Tiling:
    """How latents become pixels tile by tile."""

    default: TilingName = "auto"
    """For requests that leave it open; auto: tiled when the lease covers no more."""
    tile_px: int = 256
    """Side of a tile, in pixels."""
    overlap: float = 0.5
    """What of a tile its neighbour covers too, at most half."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where weights lie and how they are computed with, as the native library names it."""

    threads: int = field(default_factory=default_threads)
    flash_attention: bool = True
    """In the diffusion model."""
    offload_to_cpu: bool = False
    """Weights lie in host memory and are brought to the card for their phase alone."""
    clip_on_cpu: bool = False
    """Text encoders, language models among them, stay on the CPU."""
    vae_on_cpu: bool = False
    mmap: bool = False
    diffusion_conv_direct: bool = False
    vae_conv_direct: bool = False
    """Less memory for the decode, on some cards slower."""
    taesd_previews_only: bool = False
    """The small decoder shows previews, and the large one decodes."""


@dataclass(frozen=True, slots=True)
class Output:
    """How pictures leave where a request says nothing."""

    format: FormatName = "webp"
    quality: int = 85
    lossless: bool = False
    webp_method: int = 4


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """A model's files, what it accepts, and the room it gets."""

    family: FamilyName
    files: Mapping[Role, str]
    """Absolute paths."""
    defaults: Defaults = field(default_factory=Defaults)
    sizes: Sizes = field(default_factory=Sizes)
    zero_guidance: float | None = None
    """What an exact guidance of 0 is replaced by; None: 0 it stays."""
    flow_shift: float | None = None
    """None: as the native library finds right for the model."""
    references: bool = False
    """It takes pictures to look at."""
    max_batch: int = 1
    placement: Placement = field(default_factory=Placement)
    tiling: Tiling = field(default_factory=Tiling)
    lora_dir: str | None = None
    """Absolute; None: no LoRAs by id."""
    allow_lora_paths: bool = False
    result_cache_entries: int = 64
    """0: no result cache."""
    result_cache_mib: int = 64
    output: Output = field(default_factory=Output)
    peak: PeakProfile = field(default_factory=PeakProfile)
    on_card_mib: int | None = None
    """What its residence takes of a card; None: it is in host memory."""
    restart_s: float = 2.0
    """What ending the process and starting another takes, beside the load, which is measured."""


def as_json(spec: EngineSpec) -> dict[str, Any]:
    """What `spec_of` takes back, of JSON's types alone."""
    return asdict(spec) | {"files": dict(spec.files)}


def spec_of(values: Mapping[str, Any]) -> EngineSpec:
    """The spec that `as_json` was given."""
    peak = values["peak"]
    parts = {
        "defaults": Defaults(**values["defaults"]),
        "sizes": Sizes(**values["sizes"]),
        "placement": Placement(**values["placement"]),
        "tiling": Tiling(**values["tiling"]),
        "output": Output(**values["output"]),
        "peak": PeakProfile(
            peak["condition_mib"],
            *(Growth(**peak[phase]) for phase in ("denoise", "decode", "preview")),
        ),
    }
    return EngineSpec(**(dict(values) | parts))
