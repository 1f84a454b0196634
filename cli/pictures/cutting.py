"""The subject of a picture: what is asked, and the answer of the matting service."""

import re
from pathlib import Path

from cli.console import Refused
from cli.dial import Dialled
from cli.pictures.files import Format, read_picture
from cli.reach import Service, check_model, reached
from cohabit.common.v1 import common_pb2
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.matte.v1 import matte_pb2_grpc

MATTE = Service("matte", "cuts subjects out", "docs/guides/matting.md")
_LONGEST_S = 3600.0
"""Of a request with its wait, as its service bounds it."""
_COLOR = re.compile(r"#?[0-9A-Za-z]{1,32}", re.ASCII)
OPTIONS = {
    "model": "--model",
    "image": "PICTURE",
    "backdrop": "--background",
}


def backdrop_of(written: str) -> pb.Backdrop | None:
    """A colour, "estimated", or a picture's path; None for "transparent". Raises Refused."""
    if written == "transparent":
        return None
    if written == "estimated":
        return pb.Backdrop(estimated=pb.Backdrop.Estimated())
    if _COLOR.fullmatch(written):  # whether a word is a colour, the service knows
        return pb.Backdrop(color=written)
    return pb.Backdrop(image=common_pb2.Media(data=read_picture(Path(written))))


def request_of(
    picture: Path, form: Format, *, model: str, background: str | None, matte: bool
) -> pb.RemoveBackgroundRequest:
    """What is asked of the service. Raises Refused."""
    if matte and background is not None:
        raise Refused("--matte writes the matte alone; leave --background out.")
    backdrop = None if background is None else backdrop_of(background)
    if form is Format.JPEG and backdrop is None and not matte:
        raise Refused("A JPEG has no transparency; add --background, or write a .png or .webp.")
    return pb.RemoveBackgroundRequest(
        model=model,
        image=common_pb2.Media(data=read_picture(picture)),
        backdrop=backdrop,
        matte_only=matte,
        output=pb.ImageOutput(format=pb.ImageFormat.Value(f"IMAGE_FORMAT_{form}")),
    )


async def cut(house: Dialled, request: pb.RemoveBackgroundRequest) -> pb.RemoveBackgroundResponse:
    """The cutout, or the matte. Raises Refused."""
    async with reached(house, MATTE, OPTIONS) as channel:
        if request.model:
            await check_model(house, MATTE, request.model)
        stub: matte_pb2_grpc.MatteServiceAsyncStub = matte_pb2_grpc.MatteServiceStub(channel)
        return await stub.RemoveBackground(request, timeout=_LONGEST_S)
