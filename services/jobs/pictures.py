"""The pictures that steps make, on their way from the wire to the job's folder. Pure."""

from dataclasses import dataclass, replace

from chassis.errors import Fault
from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from cohabit.matte.v1 import matte_pb2
from imaging.decode import decode, decode_gray
from imaging.encode import encode
from imaging.values import Encoding
from services.jobs.checks import BOUNDS
from services.jobs.core.values import Role

_GRID_PX = 64


@dataclass(frozen=True, slots=True)
class Made:
    """A picture that a step made."""

    role: Role
    kept: bool
    data: bytes
    mime_type: str
    width_px: int
    height_px: int
    seed: int | None = None


def cut(
    answer: matte_pb2.RemoveBackgroundResponse, role: Role, seed: int | None, *, kept: bool
) -> list[Made]:
    """What the matte service answered; `role` is that of its first picture."""
    pictures = {role: answer.image}
    if answer.HasField("matte"):
        pictures[Role.MATTE] = answer.matte
    if answer.HasField("background"):
        pictures[Role.BACKGROUND] = answer.background
    made = [
        media_as(role, media, answer.width_px, answer.height_px, seed)
        for role, media in pictures.items()
    ]
    return [replace(one, kept=kept) for one in made]


def media_as(
    role: Role, media: common_pb2.Media, width_px: int, height_px: int, seed: int | None
) -> Made:
    """A picture as another service answered it, to be kept."""
    return Made(role, True, media.data, media.mime_type, width_px, height_px, seed)


def encoded(made: Made, encoding: Encoding) -> Made:
    """A picture between steps as the result that is kept of it. Raises Fault."""
    pixels = (decode_gray if made.role is Role.MATTE else decode)(made.data, BOUNDS, "picture")
    file = encode(pixels, encoding)
    return replace(made, kept=True, data=file.data, mime_type=file.mime_type)


def shrunk(picture: pb.Picture, fault: Fault) -> bool:
    """Scale a picture to what its model can paint; False: the fault does not say how much that is.

    Sides are multiples of 64, which every model accepts without rounding them up again.
    """
    most_px = fault.metadata.get("max_px", "")
    whole_px = picture.width_px * picture.height_px
    if not most_px.isdecimal() or not 0 < int(most_px) < whole_px:
        return False
    scale = (int(most_px) / whole_px) ** 0.5
    picture.width_px = max(_GRID_PX, int(picture.width_px * scale) // _GRID_PX * _GRID_PX)
    picture.height_px = max(_GRID_PX, int(picture.height_px * scale) // _GRID_PX * _GRID_PX)
    return True
