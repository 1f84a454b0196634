"""Specs of jobs as requests to the services that do the work."""

from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from cohabit.matte.v1 import matte_pb2
from imaging.values import Encoding, Format

BARE_MOST_PX = 8 << 20
"""Up to this size pictures go from step to step as bare pixels; beyond, as PNG, within 96 MiB."""

_FORMATS = {
    pb.RESULT_FORMAT_PNG: Format.PNG,
    pb.RESULT_FORMAT_WEBP: Format.WEBP,
    pb.RESULT_FORMAT_JPEG: Format.JPEG,
}
_PAINTED = {
    Format.PNG: diffusion_pb2.IMAGE_FORMAT_PNG,
    Format.WEBP: diffusion_pb2.IMAGE_FORMAT_WEBP,
    Format.JPEG: diffusion_pb2.IMAGE_FORMAT_JPEG,
    Format.PNM: diffusion_pb2.IMAGE_FORMAT_PPM,
}
_CUT = {
    Format.PNG: matte_pb2.IMAGE_FORMAT_PNG,
    Format.WEBP: matte_pb2.IMAGE_FORMAT_WEBP,
    Format.JPEG: matte_pb2.IMAGE_FORMAT_JPEG,
    Format.PNM: matte_pb2.IMAGE_FORMAT_PNM,
}


def encoding_of(output: pb.ResultOutput, default: Encoding, *, alpha: bool) -> Encoding:
    """How a result is written. What has alpha is never written as JPEG: WebP stands in."""
    chosen = _FORMATS.get(output.format, default.format)
    if alpha and chosen is Format.JPEG:
        chosen = Format.WEBP
    return Encoding(chosen, output.quality or default.quality, output.lossless)


def between(width_px: int, height_px: int) -> Encoding:
    """How a picture goes from step to step: without loss."""
    return Encoding(Format.PNM if width_px * height_px <= BARE_MOST_PX else Format.PNG)


def generate(
    picture: pb.Picture, model: str, index: int, encoding: Encoding
) -> diffusion_pb2.GenerateRequest:
    """Picture `index` of a job; `init_image` without its bytes is left out."""
    request = diffusion_pb2.GenerateRequest(
        model=model,
        prompt=picture.prompt,
        negative_prompt=picture.negative_prompt,
        width_px=picture.width_px,
        height_px=picture.height_px,
        steps=picture.steps,
        seed=picture.seed + index,
        loras=[_lora(lora) for lora in picture.loras],
        reuse=diffusion_pb2.GenerateRequest.Reuse(latent_replay=picture.latent_replay),
        output=diffusion_pb2.ImageOutput(
            format=_PAINTED[encoding.format],
            quality=encoding.quality,
            lossless=encoding.lossless,
        ),
    )
    if picture.HasField("guidance"):
        request.guidance = picture.guidance
    if picture.HasField("strength"):
        request.strength = picture.strength
    return request


def remove_background(
    cutout: pb.CutoutOptions, model: str, image: bytes, encoding: Encoding
) -> matte_pb2.RemoveBackgroundRequest:
    """The cutout of a picture; an image as its backdrop is the caller's to add."""
    request = matte_pb2.RemoveBackgroundRequest(
        model=model,
        image=common_pb2.Media(data=image),
        return_background=cutout.return_background,
        return_matte=cutout.return_matte,
        keep_alpha=cutout.keep_alpha,
        output=cut_output(encoding),
    )
    match cutout.WhichOneof("backdrop"):
        case "color":
            request.backdrop.color = cutout.color
        case "estimated":
            request.backdrop.estimated.SetInParent()
    return request


def cut_output(encoding: Encoding) -> matte_pb2.ImageOutput:
    """How the matte service is to write its answer."""
    return matte_pb2.ImageOutput(
        format=_CUT[encoding.format], quality=encoding.quality, lossless=encoding.lossless
    )


def _lora(lora: pb.Picture.Lora) -> diffusion_pb2.Lora:
    asked = diffusion_pb2.Lora(lora_id=lora.lora_id, filename=lora.filename)
    if lora.HasField("scale"):
        asked.scale = lora.scale
    return asked
