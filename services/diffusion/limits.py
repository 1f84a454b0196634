"""What a request for pictures may ask for; everything is refused here before anything is allocated.

Only what the request and the model's spec say is looked at: files and pictures are checked where
they are read.
"""

from chassis.errors import Fault, Reason
from services.diffusion.core.prompts import most_tokens
from services.diffusion.core.sizes import Settled, SizeTooLargeError, settled
from services.diffusion.engine import MOST_CLIP_SKIP, MOST_GUIDANCE, MOST_STEPS, EngineSpec
from services.diffusion.values import Asked

MOST_PROMPT_BYTES = 32 << 10
MOST_PROMPT_TOKENS = 1024
"""By `core.prompts`. The scores of a T5 encoder take 256 MiB then; no family was trained on more
than half of it."""
LAST_CHAR = "\U0002ffff"
"""The native library looks later ones up in a table of 256 entries, far behind its end: that reads
what lies there, or ends the process. They are for private use, tags of flags, selectors of
variants, and ideographs that hardly anybody needs."""
MOST_MEDIA_BYTES = 80 << 20
MOST_LORAS = 8
MOST_REFERENCES = 8
MOST_INPUTS = MOST_REFERENCES + 2
"""With one to start from, and its mask."""
MOST_LORA_SCALE = 4.0
MOST_PREVIEW_PX = 1024
MOST_SEED = 2**63 - 1
"""The native library takes greater ones for "any"."""


def check(asked: Asked, spec: EngineSpec) -> None:
    """Refuse what the model cannot do, or the native library would misread.

    Raises Fault INVALID_REQUEST, MODALITY_UNSUPPORTED, PAYLOAD_TOO_LARGE; metadata `param` names
    the field.
    """
    _check_prompt("prompt", asked.prompt)
    _check_prompt("negative_prompt", asked.negative_prompt)
    _check_numbers(asked)
    _check_media(asked, spec)
    _check_output(asked)
    if asked.batch > spec.max_batch:
        raise wrong("batch", f"is at most {spec.max_batch} for this model; send several requests")
    if len(asked.loras) > MOST_LORAS:
        raise wrong("loras", f"are at most {MOST_LORAS}; leave some out")
    for at, lora in enumerate(asked.loras):
        if not -MOST_LORA_SCALE <= lora.scale <= MOST_LORA_SCALE:  # NaN too
            raise wrong(
                f"loras[{at}].scale", f"must be from -{MOST_LORA_SCALE:g} to {MOST_LORA_SCALE:g}"
            )


def size_of(
    spec: EngineSpec, width_px: int, height_px: int, init_px: tuple[int, int] | None = None
) -> Settled:
    """The size that a picture gets; 0 leaves a side open. Raises Fault IMAGE_TOO_LARGE."""
    default_px = spec.defaults.width_px, spec.defaults.height_px
    try:
        return settled(spec.sizes, width_px, height_px, default_px, init_px)
    except SizeTooLargeError as error:
        metadata = {"param": error.param, "max_px": str(error.max_px)}
        raise Fault(Reason.IMAGE_TOO_LARGE, str(error), metadata=metadata) from None


def wrong(param: str, what: str) -> Fault:
    """`param` of a request is wrong in that it …"""
    return Fault(Reason.INVALID_REQUEST, f"`{param}` {what}.", metadata={"param": param})


def _check_prompt(param: str, text: str) -> None:
    if len(text.encode(errors="replace")) > MOST_PROMPT_BYTES:
        raise wrong(param, "is longer than 32 KiB; say it shorter")
    if "\0" in text:
        raise wrong(param, "holds a NUL character; remove it")
    if (last := max(text, default="")) > LAST_CHAR:
        raise wrong(param, f"holds U+{ord(last):X}, a character that no model is given; remove it")
    if most_tokens(text) > MOST_PROMPT_TOKENS:
        raise wrong(
            param,
            f"is longer than the about {MOST_PROMPT_TOKENS} tokens that text encoders are given "
            "room for; say it shorter",
        )


def _check_numbers(asked: Asked) -> None:
    if asked.steps > MOST_STEPS:
        raise wrong("steps", f"must be from 1 to {MOST_STEPS}")
    ranges = (
        ("guidance", asked.guidance, MOST_GUIDANCE),
        ("distilled_guidance", asked.distilled_guidance, MOST_GUIDANCE),
        ("image_guidance", asked.image_guidance, MOST_GUIDANCE),
        ("strength", asked.strength, 1.0),
        ("eta", asked.eta, 1.0),
    )
    for param, value, most in ranges:
        if value is not None and not 0 <= value <= most:  # NaN too
            raise wrong(param, f"must be from 0 to {most:g}")
    if asked.seed is not None and asked.seed > MOST_SEED:
        raise wrong("seed", "must be below 2^63")
    if asked.clip_skip > MOST_CLIP_SKIP:
        raise wrong("clip_skip", f"is at most {MOST_CLIP_SKIP}")
    if asked.previews.max_px > MOST_PREVIEW_PX:
        raise wrong("preview.max_px", f"is at most {MOST_PREVIEW_PX}")


def _check_media(asked: Asked, spec: EngineSpec) -> None:
    if asked.strength is not None and not asked.init_image:
        raise wrong("strength", "goes together with `init_image`; send one, or leave it out")
    if asked.mask and not asked.init_image:
        raise wrong("mask", "goes together with `init_image`, which it says where to paint over")
    if len(asked.reference_images) > MOST_REFERENCES:
        raise wrong("reference_images", f"are at most {MOST_REFERENCES}; leave some out")
    if asked.reference_images and not spec.references:
        raise Fault(
            Reason.MODALITY_UNSUPPORTED,
            "This model takes no `reference_images`; send the picture as `init_image`, or use a "
            "model that edits.",
            metadata={"param": "reference_images"},
        )
    held = sum(map(len, (asked.init_image, asked.mask, *asked.reference_images)))
    if held > MOST_MEDIA_BYTES:
        raise Fault(
            Reason.PAYLOAD_TOO_LARGE,
            "The pictures of one request hold at most 80 MiB together; send smaller files.",
        )


def _check_output(asked: Asked) -> None:
    if asked.output.quality > 100:
        raise wrong("output.quality", "must be from 1 to 100")
    if asked.output.lossless and asked.output.format == "jpeg":
        raise wrong("output.lossless", "is for WebP; JPEG cannot do without loss")
