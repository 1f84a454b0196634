"""What a request for a cutout asks of the matting service. Pure: a form in, a `Removal` out."""

from dataclasses import dataclass
from typing import Any

from cohabit.common.v1 import common_pb2
from cohabit.matte.v1 import matte_pb2 as pb
from edge.cutouts.backdrop import Backdrop, Color, Estimated, backdrop_of
from edge.cutouts.body import RemovalBody
from edge.cutouts.output import Output, output_of
from edge.cutouts.sources import Source, check_files, subject_of
from edge.errors import bad_field
from edge.pictures.upload import Form

JOBS_PATH = "/v1/images/background-removals/jobs"
FILES = ("image", "file", "background_image", "background")
_FORMATS: dict[str | None, Any] = {
    None: pb.IMAGE_FORMAT_UNSPECIFIED,
    "webp": pb.IMAGE_FORMAT_WEBP,
    "png": pb.IMAGE_FORMAT_PNG,
    "jpeg": pb.IMAGE_FORMAT_JPEG,
}
_NAMES = {"output": "output_format", "output.format": "output_format", "output.quality": "quality"}
_EDGES: dict[str | None, Any] = {
    None: pb.EDGE_COLOR_UNSPECIFIED,
    "estimated": pb.EDGE_COLOR_ESTIMATED,
    "kept": pb.EDGE_COLOR_KEPT,
}


@dataclass(frozen=True, slots=True)
class Removal:
    """A request, understood, its pictures not fetched yet."""

    model: str | None
    """None: the house's own choice."""
    image: Source
    backdrop: Backdrop | None
    request: pb.RemoveBackgroundRequest
    """All but the pictures."""
    as_json: bool

    def client_name(self, param: str) -> str:
        """What the client calls the field that the matting service calls `param`."""
        if param.startswith("backdrop"):
            return self.backdrop.param if isinstance(self.backdrop, Source) else "background"
        if param == "image":
            return self.image.param
        return _NAMES.get(param, param)


def understand(form: Form) -> Removal:
    """What is asked for. Raises Fault."""
    body = form.read_as(RemovalBody)
    check_files(form, FILES)
    _check_jobless(body)
    image = subject_of(form, body.image, body.image_url, body.file)
    backdrop = backdrop_of(form, body)
    _check_matte_only(body, backdrop)
    has_alpha = backdrop is None and not body.matte_only
    return Removal(
        model=body.model,
        image=image,
        backdrop=backdrop,
        request=_request(body, backdrop, output_of(body, has_alpha=has_alpha)),
        as_json=_as_json(body),
    )


def filled(
    removal: Removal, image: common_pb2.Media, behind: common_pb2.Media | None
) -> pb.RemoveBackgroundRequest:
    """The engine's request, with the pictures."""
    removal.request.image.CopyFrom(image)
    if behind is not None:
        removal.request.backdrop.image.CopyFrom(behind)
    return removal.request


def _check_jobless(body: RemovalBody) -> None:
    for name in ("background_prompt", "background_strength"):
        if getattr(body, name) is not None:
            message = f"`{name}` takes a picture to be generated, and so a job: POST {JOBS_PATH}."
            raise bad_field(name, message)


def _check_matte_only(body: RemovalBody, backdrop: Backdrop | None) -> None:
    if not body.matte_only:
        return
    beside = {"background": backdrop is not None, "return_background": body.return_background}
    for name, asked in beside.items():
        if asked:
            raise bad_field(name, f"`matte_only` answers the matte alone; leave out `{name}`.")


def _as_json(body: RemovalBody) -> bool:
    several = not body.matte_only and (body.return_matte or body.return_background)
    if several and body.response_format == "binary":
        message = "`binary` holds one picture, and several were asked for; take `b64_json`."
        raise bad_field("response_format", message)
    return several or body.response_format == "b64_json"


def _request(
    body: RemovalBody, backdrop: Backdrop | None, output: Output
) -> pb.RemoveBackgroundRequest:
    if body.webp_method is not None and output.format not in (None, "webp"):
        raise bad_field("webp_method", f"`webp_method` is for webp, not for {output.format}.")
    request = pb.RemoveBackgroundRequest(
        return_background=body.return_background,
        return_matte=body.return_matte or body.matte_only,
        matte_only=body.matte_only,
        keep_alpha=body.keep_alpha,
        edge_color=_EDGES[body.edge_color],
        output=pb.ImageOutput(
            format=_FORMATS[output.format],
            quality=output.quality,
            lossless=output.lossless,
            webp_method=body.webp_method,
        ),
    )
    if isinstance(backdrop, Color):
        request.backdrop.color = backdrop.name
    elif isinstance(backdrop, Estimated):
        request.backdrop.estimated.SetInParent()
    return request
