"""What a request for pictures is, and what happens to it. Wire messages and pixels stay out."""

from dataclasses import dataclass, field
from enum import Enum

from services.diffusion.core.phases import Phase
from services.diffusion.core.sizes import Settled
from services.diffusion.engine import FormatName, SamplerName, SchedulerName, TilingName


@dataclass(frozen=True, slots=True)
class AskedLora:
    """An adapter as a request names it: by `lora_id`, or by `path`."""

    lora_id: str = ""
    path: str = ""
    filename: str = ""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class AskedOutput:
    """How pictures shall leave; what is empty or 0 is as the model is configured."""

    format: FormatName | None = None
    quality: int = 0
    lossless: bool = False
    omit_parameters: bool = False


@dataclass(frozen=True, slots=True)
class AskedPreviews:
    """How often to show what is there so far, and how large."""

    every_steps: int = 0
    """0: never."""
    max_px: int = 0
    """Longest side; 0: 256."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came, before defaults. None, 0 and empty: left open."""

    prompt: str = ""
    negative_prompt: str = ""
    width_px: int = 0
    height_px: int = 0
    steps: int = 0
    guidance: float | None = None
    distilled_guidance: float | None = None
    image_guidance: float | None = None
    sampler: SamplerName | None = None
    scheduler: SchedulerName | None = None
    seed: int | None = None
    batch: int = 1
    loras: tuple[AskedLora, ...] = ()
    tiling: TilingName | None = None
    init_image: bytes = b""
    strength: float | None = None
    mask: bytes = b""
    reference_images: tuple[bytes, ...] = ()
    output: AskedOutput = field(default_factory=AskedOutput)
    previews: AskedPreviews = field(default_factory=AskedPreviews)
    clip_skip: int = 0
    eta: float | None = None
    no_result_cache: bool = False
    transient_lease_id: str = ""
    transient_mib: int = 0

    @property
    def input_images(self) -> int:
        """Pictures to start from and to look at; a mask is none."""
        return bool(self.init_image) + len(self.reference_images)


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter whose file was found."""

    name: str
    """As people know it."""
    file: str
    scale: float
    fingerprint: str
    """Of the file, which is another one when its bytes are."""


@dataclass(frozen=True, slots=True)
class Output:
    """How pictures leave."""

    format: FormatName
    quality: int
    lossless: bool
    webp_method: int
    parameters: bool
    """The generation parameters are written into the file."""


@dataclass(frozen=True, slots=True)
class Previews:
    """What is shown on the way; no pixel of the picture depends on it."""

    every_steps: int = 0
    """0: nothing."""
    max_px: int = 256
    """Longest side."""
    decoded: bool = False
    """By the small decoder; else the latents are projected to colours, which takes no memory."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A request after defaults: all that a picture depends on but the pictures that came with it.

    Every field but those of `core.cache_key.HARMLESS` goes into the key of the result cache.
    """

    prompt: str
    negative_prompt: str
    size: Settled
    steps: int
    guidance: float
    distilled_guidance: float
    image_guidance: float | None
    """None: as `guidance`."""
    sampler: SamplerName
    scheduler: SchedulerName
    seed: int
    """Of the first picture."""
    seeded: bool
    """The caller chose the seed."""
    batch: int
    loras: tuple[Lora, ...]
    tiled: bool
    strength: float | None
    """None: there is no picture to start from."""
    clip_skip: int
    eta: float | None
    """None: the sampler's own."""
    output: Output
    previews: Previews
    cached: bool
    """The result cache may be looked at and filled."""


class Origin(Enum):
    """Where a picture came from; values are those of cohabit.diffusion.v1.ImageOrigin."""

    GENERATED = 1
    EXACT_RESULT_CACHE = 2


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is."""

    phase: Phase
    index: int
    done_steps: int
    total_steps: int
    left_ms: int = 0
    """0: unknown."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What is there so far, as a JPEG."""

    index: int
    step: int
    data: bytes


@dataclass(frozen=True, slots=True)
class File:
    """An encoded picture."""

    data: bytes
    mime_type: str


@dataclass(frozen=True, slots=True)
class Image:
    """A finished picture."""

    index: int
    file: File
    width_px: int
    height_px: int
    seed: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time went."""

    engine_wait_ms: float = 0.0
    condition_ms: float = 0.0
    denoise_ms: float = 0.0
    decode_ms: float = 0.0
    encode_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Finish:
    """How it ended."""

    timings: Timings
    peak_transient_mib: int = 0
    """0: not measured."""


Event = Settings | Progress | Preview | Image | Finish
"""In this order: the settings, then progress, previews and pictures, then the finish."""
