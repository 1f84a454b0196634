"""The answers of the routes that paint: a body, or events, in OpenAI's shape. Pure.

Beside OpenAI's fields a picture tells its seed and where it came from, and `metrics` tells the
settings that applied and where the time went. Diffusion models read no tokens that could be
counted: usage, which the events must have, is 0.
"""

import base64
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from edge.pictures.body import FormatName
from edge.pictures.painted import Painted, spent
from edge.pictures.painting import EventFamily, Painting

OriginName = Literal["generated", "exact_result_cache", "exact_latent_replay"]
ToldQuality = Literal["low", "medium", "high", "xhigh", "max", "auto"]
EventType = Literal[
    "image_generation.partial_image",
    "image_generation.completed",
    "image_edit.partial_image",
    "image_edit.completed",
]

_ORIGINS: dict[int, OriginName] = {
    pb.IMAGE_ORIGIN_GENERATED: "generated",
    pb.IMAGE_ORIGIN_EXACT_RESULT_CACHE: "exact_result_cache",
    pb.IMAGE_ORIGIN_EXACT_LATENT_REPLAY: "exact_latent_replay",
}
_FORMATS: dict[str, FormatName] = {
    "image/png": "png",
    "image/webp": "webp",
    "image/jpeg": "jpeg",
}
_PARTIAL: dict[EventFamily, EventType] = {
    "image_generation": "image_generation.partial_image",
    "image_edit": "image_edit.partial_image",
}
_COMPLETED: dict[EventFamily, EventType] = {
    "image_generation": "image_generation.completed",
    "image_edit": "image_edit.completed",
}
_encode = msgspec.json.Encoder().encode


class PaintMetrics(msgspec.Struct):
    """The settings that applied to the first picture, and the time that all took together."""

    model: str
    """The key that served."""
    seed: int
    width: int
    height: int
    size_rounded: bool
    """The size differs from the one asked for."""
    steps: int
    guidance: float
    vae_tiled: bool
    origin: OriginName
    queue_wait_ms: float
    """For a turn, the load of the model included."""
    engine_wait_ms: float
    condition_ms: float
    denoise_ms: float
    decode_ms: float
    encode_ms: float
    total_ms: float
    """In the engine."""


class PaintedImage(msgspec.Struct):
    """One picture."""

    b64_json: str
    seed: int
    origin: OriginName


class ImagesAnswer(msgspec.Struct):
    """The pictures, in the order of their seeds."""

    created: int
    data: list[PaintedImage]
    output_format: FormatName
    size: str
    metrics: PaintMetrics
    background: Literal["opaque"] = "opaque"
    quality: ToldQuality | UnsetType = UNSET


class PaintTokenDetails(msgspec.Struct):
    """None are counted."""

    text_tokens: int = 0
    image_tokens: int = 0


class PaintUsage(msgspec.Struct):
    """None are counted."""

    input_tokens: int = 0
    input_tokens_details: PaintTokenDetails = msgspec.field(default_factory=PaintTokenDetails)
    output_tokens: int = 0
    total_tokens: int = 0


class PaintEvent(msgspec.Struct):
    """A picture, as it is so far or as it has become."""

    type: EventType
    b64_json: str
    created_at: int
    size: str
    quality: ToldQuality
    output_format: FormatName
    """Of these bytes; partial pictures are JPEGs."""
    background: Literal["opaque"] = "opaque"
    partial_image_index: int | UnsetType = UNSET
    usage: PaintUsage | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    origin: OriginName | UnsetType = UNSET
    metrics: PaintMetrics | UnsetType = UNSET


def body(painting: Painting, model: str, pictures: Sequence[Painted], created_s: int) -> bytes:
    """All pictures, which are done, as one body."""
    first = pictures[0]
    quality = _quality(painting)
    answer = ImagesAnswer(
        created=created_s,
        data=[_picture(one) for one in pictures],
        output_format=_format(_image(first).image),
        size=_size(first),
        metrics=_metrics(model, pictures),
        quality=UNSET if quality == "auto" else quality,
    )
    return _encode(answer)


def partial(
    painting: Painting, painted: Painted, preview: common_pb2.Media, index: int, now_s: int
) -> bytes:
    """The event that shows a picture as it is so far."""
    event = PaintEvent(
        type=_PARTIAL[painting.events],
        b64_json=_base64(preview.data),
        created_at=now_s,
        size=f"{painted.started.width_px}x{painted.started.height_px}",
        quality=_quality(painting),
        output_format=_format(preview),
        partial_image_index=index,
    )
    return _event(event)


def completed(painting: Painting, model: str, painted: Painted, now_s: int) -> bytes:
    """The event that brings a picture, which is done."""
    picture = _picture(painted)
    event = PaintEvent(
        type=_COMPLETED[painting.events],
        b64_json=picture.b64_json,
        created_at=now_s,
        size=_size(painted),
        quality=_quality(painting),
        output_format=_format(_image(painted).image),
        usage=PaintUsage(),
        seed=picture.seed,
        origin=picture.origin,
        metrics=_metrics(model, (painted,)),
    )
    return _event(event)


def _event(event: PaintEvent) -> bytes:
    return b"event: " + event.type.encode() + b"\ndata: " + _encode(event) + b"\n\n"


def _metrics(model: str, pictures: Sequence[Painted]) -> PaintMetrics:
    first = pictures[0]
    started, image = first.started, _image(first)
    return PaintMetrics(
        model=model,
        seed=image.seed,
        width=image.width_px,
        height=image.height_px,
        size_rounded=started.size_rounded,
        steps=started.steps,
        guidance=round(started.guidance, 3),
        vae_tiled=started.vae_tiled,
        origin=_origin(image),
        queue_wait_ms=sum(one.queue_wait_ms for one in pictures),
        engine_wait_ms=spent(pictures, "engine_wait_ms"),
        condition_ms=spent(pictures, "condition_ms"),
        denoise_ms=spent(pictures, "denoise_ms"),
        decode_ms=spent(pictures, "decode_ms"),
        encode_ms=spent(pictures, "encode_ms"),
        total_ms=spent(pictures, "total_ms"),
    )


def _picture(painted: Painted) -> PaintedImage:
    image = _image(painted)
    return PaintedImage(_base64(image.image.data), image.seed, _origin(image))


def _image(painted: Painted) -> pb.GenerateResponse.Image:
    assert painted.image is not None  # noqa: S101 - it is done
    return painted.image


def _origin(image: pb.GenerateResponse.Image) -> OriginName:
    return _ORIGINS.get(image.origin, "generated")


def _size(painted: Painted) -> str:
    image = _image(painted)
    return f"{image.width_px}x{image.height_px}"


def _format(media: common_pb2.Media) -> FormatName:
    return _FORMATS.get(media.mime_type, "png")


def _quality(painting: Painting) -> ToldQuality:
    told = painting.quality
    # Words of models that are no more: today's clients do not know them in answers.
    return "auto" if told == "standard" or told == "hd" else told  # noqa: PLR1714 - for mypy


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
