"""cohabit.matte.v1 ↔ values. What cannot be granted is refused here, before pictures are opened."""

from collections.abc import Mapping
from dataclasses import replace

from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from cohabit.matte.v1 import matte_pb2 as pb
from imaging.color import parse_color
from imaging.values import Encoded, Encoding, Format
from services.matte.values import (
    Backdrop,
    Composed,
    Composition,
    EdgeColor,
    Estimated,
    EstimatedBackdrop,
    Estimation,
    PictureBackdrop,
    PlainBackdrop,
    Removal,
    Removed,
    Times,
)

_MOST_QUALITY = 100
_MOST_WEBP_METHOD = 6

_FORMATS: Mapping["pb.ImageFormat.ValueType", Format] = {
    pb.IMAGE_FORMAT_PNG: Format.PNG,
    pb.IMAGE_FORMAT_WEBP: Format.WEBP,
    pb.IMAGE_FORMAT_JPEG: Format.JPEG,
    pb.IMAGE_FORMAT_PNM: Format.PNM,
}
_EDGES: Mapping["pb.EdgeColor.ValueType", EdgeColor] = {
    pb.EDGE_COLOR_UNSPECIFIED: EdgeColor.ESTIMATED,
    pb.EDGE_COLOR_ESTIMATED: EdgeColor.ESTIMATED,
    pb.EDGE_COLOR_KEPT: EdgeColor.KEPT,
}


def removal_of(request: pb.RemoveBackgroundRequest, default: Encoding) -> Removal:
    """Raises Fault INVALID_REQUEST that names the field."""
    if request.edge_color not in _EDGES:
        raise _wrong("edge_color", "must be EDGE_COLOR_ESTIMATED or EDGE_COLOR_KEPT")
    if request.matte_only and (request.HasField("backdrop") or request.return_background):
        raise _wrong("matte_only", "leaves no room for `backdrop` or `return_background`")
    backdrop = _backdrop(request.backdrop) if request.HasField("backdrop") else None
    encoding = encoding_of(request.output, default)
    if encoding.format is Format.JPEG and backdrop is None and not request.matte_only:
        raise _no_alpha("set a `backdrop`")
    return Removal(
        image=_data(request.image, "image"),
        encoding=encoding,
        backdrop=backdrop,
        return_background=request.return_background,
        return_matte=request.return_matte,
        matte_only=request.matte_only,
        edge_color=_EDGES[request.edge_color],
        keep_alpha=request.keep_alpha,
    )


def estimation_of(request: pb.EstimateForegroundRequest, default: Encoding) -> Estimation:
    """Raises Fault INVALID_REQUEST that names the field."""
    encoding = encoding_of(request.output, default)
    if encoding.format is Format.JPEG and request.cutout:
        raise _no_alpha("leave `cutout` out")
    return Estimation(
        image=_data(request.image, "image"),
        matte=_data(request.matte, "matte"),
        encoding=encoding,
        cutout=request.cutout,
        omit_background=request.omit_background,
    )


def composition_of(request: pb.CompositeRequest, default: Encoding) -> Composition:
    """Raises Fault INVALID_REQUEST that names the field."""
    backdrop = _backdrop(request.backdrop)
    if isinstance(backdrop, EstimatedBackdrop):
        raise _wrong("backdrop", "cannot be `estimated` here, for there is no picture to solve")
    return Composition(
        foreground=_data(request.foreground, "foreground"),
        backdrop=backdrop,
        encoding=encoding_of(request.output, default),
        matte=_data(request.matte, "matte") if request.HasField("matte") else None,
    )


def encoding_of(output: pb.ImageOutput, default: Encoding) -> Encoding:
    """As asked; what is unset as `default`. Raises Fault INVALID_REQUEST that names the field."""
    if output.format != pb.IMAGE_FORMAT_UNSPECIFIED and output.format not in _FORMATS:
        raise _wrong("output.format", "must be PNG, WEBP, JPEG or PNM")
    if output.quality > _MOST_QUALITY:
        raise _wrong("output.quality", f"must be 1 to {_MOST_QUALITY}, or 0 for the default")
    encoding = replace(
        default,
        format=_FORMATS.get(output.format, default.format),
        quality=output.quality or default.quality,
        lossless=output.lossless,
    )
    if not output.HasField("webp_method"):
        return encoding
    if output.webp_method > _MOST_WEBP_METHOD:
        raise _wrong("output.webp_method", f"must be 0 to {_MOST_WEBP_METHOD}")
    return replace(encoding, webp_method=output.webp_method)


def removed_message(removed: Removed, times: Times, device: str) -> pb.RemoveBackgroundResponse:
    """The answer of a removal, whose network ran on `device`."""
    return pb.RemoveBackgroundResponse(
        image=_media(removed.image),
        background=_media(removed.background),
        matte=_media(removed.matte),
        width_px=removed.width_px,
        height_px=removed.height_px,
        coverage=removed.coverage,
        device=device,
        timings=timings_message(times),
    )


def estimated_message(estimated: Estimated, times: Times) -> pb.EstimateForegroundResponse:
    """The answer of an estimation."""
    return pb.EstimateForegroundResponse(
        foreground=_media(estimated.foreground),
        background=_media(estimated.background),
        timings=timings_message(times),
    )


def composed_message(composed: Composed, times: Times) -> pb.CompositeResponse:
    """The answer of a composition."""
    return pb.CompositeResponse(
        image=_media(composed.image),
        width_px=composed.width_px,
        height_px=composed.height_px,
        timings=timings_message(times),
    )


def timings_message(times: Times) -> pb.Timings:
    """Where the time went."""
    return pb.Timings(
        engine_wait_ms=times.engine_wait_ms,
        decode_ms=times.decode_ms,
        network_ms=times.network_ms,
        solve_ms=times.solve_ms,
        encode_ms=times.encode_ms,
        total_ms=times.total_ms,
    )


def _backdrop(backdrop: pb.Backdrop) -> Backdrop:
    match backdrop.WhichOneof("kind"):
        case "color":
            return PlainBackdrop(parse_color(backdrop.color, "backdrop.color"))
        case "image":
            return PictureBackdrop(_data(backdrop.image, "backdrop.image"))
        case "estimated":
            return EstimatedBackdrop()
    raise _wrong("backdrop", "needs a `color`, an `image` or `estimated`")


def _data(media: common_pb2.Media, field: str) -> bytes:
    if not media.data:
        raise _wrong(field, "is missing; send the bytes of a picture")
    return media.data


def _media(encoded: Encoded | None) -> common_pb2.Media | None:
    if encoded is None:
        return None
    return common_pb2.Media(data=encoded.data, mime_type=encoded.mime_type)


def _no_alpha(instead: str) -> Fault:
    return _wrong("output.format", f"JPEG has no alpha; {instead}, or take PNG or WEBP")


def _wrong(field: str, told: str) -> Fault:
    return Fault(Reason.INVALID_REQUEST, f"`{field}`: {told}.", metadata={"param": field})
