"""From the forms of the routes that paint to what they mean. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from cohabit.diffusion.v1 import diffusion_pb2 as pb
from edge.errors import bad_field
from edge.pictures.body import (
    MOST_PROMPT_BYTES,
    MOST_REFERENCES,
    BackgroundBody,
    EditBody,
    GenerationBody,
    LoraWish,
    PaintBody,
    Picture,
    StyleBody,
)
from edge.pictures.fields import IN_JSON, MOST_SEED, sides_px
from edge.pictures.painting import Given, Painting, Role
from edge.pictures.upload import Form, Upload

_PREVIEW_PX = 512
_PLAIN = (
    *("negative_prompt", "steps", "guidance", "distilled_guidance", "image_guidance"),
    *("eta", "clip_skip", "strength"),
)
"""Fields that the engine takes as they are."""
_FORMATS = {
    "png": pb.IMAGE_FORMAT_PNG,
    "webp": pb.IMAGE_FORMAT_WEBP,
    "jpeg": pb.IMAGE_FORMAT_JPEG,
}

B = TypeVar("B", bound=PaintBody)


def generation(form: Form) -> Painting:
    """POST /v1/images/generations. Raises Fault."""
    body = _read(form, GenerationBody, ("image", "reference_images"))
    start = _pictures(form, "image", body.image, "init_image", most=1)
    look = _pictures(
        form, "reference_images", body.reference_images, "reference_images", most=MOST_REFERENCES
    )
    if body.strength is not None and not start:
        raise bad_field("strength", "`strength` needs an `image` to leave.")
    return _painting(body, (*start, *look))


def edit(form: Form) -> Painting:
    """POST /v1/images/edits. Raises Fault.

    With a mask the first picture is painted over, with a strength alone it is started from; what
    else is given is looked at.
    """
    body = _read(form, EditBody, ("image", "images", "mask"))
    most = MOST_REFERENCES + 1
    first: Role = "reference_images"
    given = (
        *_pictures(form, "image", body.image, first, most=most),
        *_pictures(form, "images", body.images, first, most=most),
    )
    mask = _pictures(form, "mask", body.mask, "mask", most=1)
    if not given:
        raise bad_field("image", "`image` is missing: send the picture to edit.")
    lone = len(given) == 1 and not mask and body.strength is None
    if mask or body.strength is not None or lone:
        given = (Given(given[0].value, given[0].param, "init_image"), *given[1:], *mask)
    looked_at = [one for one in given if one.role == "reference_images"]
    if len(looked_at) > MOST_REFERENCES:
        message = f"A model looks at {MOST_REFERENCES} pictures at most; send fewer."
        raise bad_field(looked_at[-1].param, message)
    return _painting(body, given, events="image_edit", only_picture=lone)


def backdrop(form: Form) -> Painting:
    """POST /v1/images/backgrounds. Raises Fault."""
    return _painting(_read(form, BackgroundBody, ()), (), background_tier=True)


def backdrop_in_style(form: Form) -> Painting:
    """POST /v1/images/backgrounds/style. Raises Fault."""
    body = _read(form, StyleBody, ("image",))
    given = _pictures(form, "image", body.image, "init_image", most=1)
    if not given:
        raise bad_field("image", "`image` is missing: send the backdrop to start from.")
    return _painting(body, given, background_tier=True)


def _read(form: Form, kind: type[B], pictures: Sequence[str]) -> B:
    for name in form.files:
        if name not in pictures:
            raise bad_field(name, f"`{name}` takes no file here; remove it or correct its name.")
    both = next((name for name in form.files if name in form.fields), None)
    if both is not None:
        raise bad_field(both, f"`{both}` is there as a file and as text; send one of the two.")
    body = form.read_as(kind, IN_JSON)
    _check(body)
    return body


def _check(body: PaintBody) -> None:
    for name in ("prompt", "negative_prompt"):
        if len((getattr(body, name) or "").encode(errors="replace")) > MOST_PROMPT_BYTES:
            raise bad_field(name, f"`{name}` is longer than {MOST_PROMPT_BYTES} bytes.")
    if body.response_format == "url":
        raise bad_field(
            "response_format",
            "No picture is kept here for a URL to lead to; ask for `b64_json`, or send the request "
            "to /v1/images/generations/jobs, whose result has a URL.",
        )
    if body.background == "transparent":
        raise bad_field(
            "background",
            "Diffusion models paint no transparency; /v1/images/foreground-generations/jobs makes "
            "a picture and cuts it out.",
        )
    if body.output_compression is not None and _format(body) == "png":
        message = "`output_compression` is for `output_format` webp and jpeg; a PNG has no loss."
        raise bad_field("output_compression", message)
    if body.partial_images and not body.stream:
        raise bad_field("partial_images", "`partial_images` needs `stream: true`.")


def _pictures(form: Form, name: str, told: Any, role: Role, *, most: int) -> tuple[Given, ...]:
    """What stands under a name, as files or in words."""
    given = [Given(one, name, role) for one in _values(form.files.get(name, ()), told)]
    if len(given) > most:
        raise bad_field(name, f"`{name}` takes {most} pictures at most; send fewer.")
    if len(given) == 1:
        return tuple(given)
    return tuple(Given(one.value, f"{name}[{i}]", role) for i, one in enumerate(given))


def _values(files: Iterable[Upload], told: Any) -> list[str | Upload]:
    listed: list[Picture] = [] if told is None else told if isinstance(told, list) else [told]
    return [*files, *(one if isinstance(one, str) else one.image_url for one in listed)]


def _painting(body: PaintBody, given: tuple[Given, ...], **more: Any) -> Painting:
    stream = bool(body.stream)
    partial_images = (body.partial_images or 0) if stream else 0
    return Painting(
        model=body.model or "",
        generate=_generate(body, partial_images),
        given=given,
        count=body.n or 1,
        stream=stream,
        partial_images=partial_images,
        quality=body.quality or "auto",
        **more,
    )


def _generate(body: PaintBody, partial_images: int) -> pb.GenerateRequest:
    width, height = sides_px(body.size, body.width, body.height)
    plain = {name: getattr(body, name, None) for name in _PLAIN}
    request = pb.GenerateRequest(
        prompt=body.prompt,
        width_px=width,
        height_px=height,
        batch=1,
        loras=[_lora(one, i) for i, one in enumerate(body.loras or ())],
        output=pb.ImageOutput(
            format=_FORMATS[_format(body)],
            # OpenAI counts from 0, and 0 leaves it to the service.
            quality=max(1, body.output_compression) if body.output_compression is not None else 0,
        ),
        reuse=pb.GenerateRequest.Reuse(no_result_cache=body.no_result_cache),
        **{name: value for name, value in plain.items() if value is not None},
    )
    if body.seed is not None and body.seed >= 0:
        _check_last_seed(body.seed + (body.n or 1) - 1)
        request.seed = body.seed
    if body.sampler is not None:
        request.sampler = pb.Sampler.Value(f"SAMPLER_{body.sampler.upper()}")
    if body.scheduler is not None:
        request.scheduler = pb.NoiseScheduler.Value(f"NOISE_SCHEDULER_{body.scheduler.upper()}")
    if body.vae_tiling is not None:
        request.vae_tiling = pb.VaeTiling.Value(f"VAE_TILING_{body.vae_tiling.upper()}")
    if partial_images:
        # Which of them are passed on is decided when the number of steps is known.
        every = max(1, (body.steps or 1) // (partial_images + 1))
        request.preview.every_steps, request.preview.max_px = every, _PREVIEW_PX
    return request


def _check_last_seed(seed: int) -> None:
    """Before the pictures that have one are made."""
    if seed > MOST_SEED:
        raise bad_field("seed", "`seed` of the last picture, `seed` + `n` - 1, must be below 2^63.")


def _format(body: PaintBody) -> str:
    return body.output_format or "png"


def _lora(wish: LoraWish, index: int) -> pb.Lora:
    at = f"loras[{index}]"
    if (wish.lora_id is None) == (wish.path is None):
        raise bad_field(at, f"`{at}` needs one of `lora_id` and `path`.")
    if wish.path is not None and wish.filename is not None:
        raise bad_field(f"{at}.filename", f"`{at}.path` already names the file.")
    lora = pb.Lora(filename=wish.filename or "")
    if wish.lora_id is not None:
        lora.lora_id = wish.lora_id
    else:
        lora.path = wish.path or ""
    if wish.scale is not None:
        lora.scale = wish.scale
    return lora
