"""How the matting service's answer is told: as the picture itself, or as JSON. Pure."""

import base64
from dataclasses import dataclass

import msgspec

from chassis.admission import engine_crashed
from cohabit.common.v1 import common_pb2
from cohabit.matte.v1 import matte_pb2 as pb
from edge.cutouts.body import RemovalAnswer, RemovalMetrics, RemovedPicture, Role
from edge.cutouts.request import Removal

JSON = "application/json"
_encode = msgspec.json.Encoder().encode
_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Served:
    """Who served a request, and when."""

    model_key: str
    created_s: int
    queue_wait_ms: int


@dataclass(frozen=True, slots=True)
class Written:
    """A body and its content type."""

    data: bytes
    mime_type: str


def written(answer: pb.RemoveBackgroundResponse, removal: Removal, served: Served) -> Written:
    """The body. Raises Fault for an answer without a picture."""
    pictures = _pictures(answer, removal)
    if not pictures:
        raise engine_crashed()
    if not removal.as_json:
        media = pictures[0][1]
        return Written(media.data, media.mime_type)
    told = RemovalAnswer(
        created=served.created_s,
        model=served.model_key,
        data=[_told(role, media, answer) for role, media in pictures],
        coverage=round(answer.coverage, 6),
        metrics=_metrics(answer, served),
    )
    return Written(_encode(told), JSON)


def _pictures(
    answer: pb.RemoveBackgroundResponse, removal: Removal
) -> list[tuple[Role, common_pb2.Media]]:
    first: Role = "cutout" if removal.backdrop is None else "image"
    media: tuple[tuple[Role, common_pb2.Media], ...] = (
        (first, answer.image),
        ("background", answer.background),
        ("matte", answer.matte),
    )
    return [(role, one) for role, one in media if one.data]


def _told(
    role: Role, media: common_pb2.Media, answer: pb.RemoveBackgroundResponse
) -> RemovedPicture:
    text = base64.b64encode(media.data).decode()
    return RemovedPicture(role, text, media.mime_type, answer.width_px, answer.height_px)


def _metrics(answer: pb.RemoveBackgroundResponse, served: Served) -> RemovalMetrics:
    took = answer.timings
    return RemovalMetrics(
        queue_wait_ms=served.queue_wait_ms,
        engine_wait_ms=round(took.engine_wait_ms, _DIGITS),
        decode_ms=round(took.decode_ms, _DIGITS),
        network_ms=round(took.network_ms, _DIGITS),
        solve_ms=round(took.solve_ms, _DIGITS),
        encode_ms=round(took.encode_ms, _DIGITS),
        total_ms=round(took.total_ms, _DIGITS),
        device=answer.device,
    )
