"""What a job may ask for: everything that can be told before it is accepted, from the spec alone.

Nothing is decoded beyond the header of a picture. Whether its models exist, the scheduler knows.
"""

import math

from chassis.errors import Fault, Reason
from cohabit.jobs.v1 import jobs_pb2 as pb
from imaging.color import parse_color
from imaging.decode import probe
from imaging.values import Bounds
from services.jobs.spec import cutout_of, kind_of, output_of, picture_of, pictures_in, wrong

MAX_COUNT = 64
BOUNDS = Bounds()
_MAX_PROMPT_BYTES = 32 << 10
_MAX_STEPS = 150
_MAX_LORAS = 8
_MAX_NAME_CHARS = 256
_SEEDS = 1 << 63
"""Diffusion models take none beyond."""


def check(spec: pb.JobSpec) -> None:
    """Everything that can be told from the spec alone.

    Reads the headers of its pictures. Faults: invalid_request, invalid_image, image_too_large,
    payload_too_large, not_implemented; the metadata names the field.
    """
    kind_of(spec)
    picture, cutout = picture_of(spec), cutout_of(spec)
    count = spec.image_generation.count
    _need(count <= MAX_COUNT, "count", f"at most {MAX_COUNT} pictures are made by one job")
    if picture is not None:
        _check_picture("picture", picture, max(1, count))
    if cutout is not None:
        _check_cutout(cutout)
    _check_output(output_of(spec), transparent=cutout is not None and not _has_backdrop(cutout))
    _check_media(spec)


def _check_picture(at: str, picture: pb.Picture, count: int = 1) -> None:
    _need(bool(picture.model), f"{at}.model", "it is empty; name a diffusion model")
    _need(len(picture.model) <= _MAX_NAME_CHARS, f"{at}.model", "no model has so long a name")
    for field in ("prompt", "negative_prompt"):
        size = len(getattr(picture, field).encode())
        _need(size <= _MAX_PROMPT_BYTES, f"{at}.{field}", "it is longer than 32 KiB; shorten it")
    for field in ("width_px", "height_px"):
        most = BOUNDS.max_side_px
        _need(getattr(picture, field) <= most, f"{at}.{field}", f"a side has at most {most} pixels")
    _need(picture.steps <= _MAX_STEPS, f"{at}.steps", f"at most {_MAX_STEPS} are taken")
    last = picture.seed + count - 1
    _need(last < _SEEDS, f"{at}.seed", "that of the last picture must stay below 2^63")
    _within(f"{at}.guidance", picture.guidance, 0, 30)
    _within(f"{at}.strength", picture.strength, 0, 1)
    if picture.HasField("strength"):
        _need(picture.HasField("init_image"), f"{at}.strength", "it needs an init_image")
    _need(len(picture.loras) <= _MAX_LORAS, f"{at}.loras", f"at most {_MAX_LORAS} are applied")
    for lora in picture.loras:
        _need(bool(lora.lora_id), f"{at}.loras", "one has no lora_id")
        _within(f"{at}.loras", lora.scale, -4, 4)


def _check_cutout(cutout: pb.CutoutOptions) -> None:
    _need(len(cutout.model) <= _MAX_NAME_CHARS, "cutout.model", "no model has so long a name")
    match cutout.WhichOneof("backdrop"):
        case "color":
            parse_color(cutout.color, "cutout.color")
        case "generated":
            at, generated = "cutout.generated", cutout.generated
            _check_picture(f"{at}.picture", generated.picture)
            _need(
                not generated.picture.HasField("init_image"),
                f"{at}.picture.init_image",
                "a backdrop starts from noise, or by background_strength from the old background",
            )
            _within(f"{at}.background_strength", generated.background_strength, 0, 1)


def _check_output(output: pb.ResultOutput, *, transparent: bool) -> None:
    _need(output.quality <= 100, "output.quality", "it goes from 1 to 100")
    _need(
        output.format in pb.ResultFormat.values(),
        "output.format",
        "there is no such format; take PNG, WEBP or JPEG",
    )
    _need(
        not (transparent and output.format == pb.RESULT_FORMAT_JPEG),
        "output.format",
        "JPEG has no transparency; choose WebP or PNG, or a backdrop",
    )


def _check_media(spec: pb.JobSpec) -> None:
    pictures = dict(pictures_in(spec))
    whole_bytes = sum(len(media.data) for media in pictures.values())
    if whole_bytes > BOUNDS.max_bytes:
        raise Fault(
            Reason.PAYLOAD_TOO_LARGE,
            f"The pictures of this job have {whole_bytes} bytes together; at most "
            f"{BOUNDS.max_bytes} are taken. Send them smaller or compressed more.",
            metadata={"param": next(iter(pictures)), "max_bytes": str(BOUNDS.max_bytes)},
        )
    for field, media in pictures.items():
        probe(media.data, BOUNDS, field)


def _has_backdrop(cutout: pb.CutoutOptions) -> bool:
    return cutout.WhichOneof("backdrop") is not None


def _within(field: str, value: float, least: float, most: float) -> None:
    fits = math.isfinite(value) and least <= value <= most
    _need(fits, field, f"it goes from {least} to {most}")


def _need(held: bool, field: str, otherwise: str) -> None:
    if not held:
        raise wrong(field, otherwise)
