"""Finished pixels → the file that leaves, with what made it written inside. Blocks; any thread."""

from collections.abc import Mapping

from imaging.encode import encode
from imaging.parameters import KEYWORD, parameters_text
from imaging.scale import resize
from imaging.values import Encoding, Format, Picture, Pixels
from services.diffusion.engine import FormatName
from services.diffusion.values import File, Settings

_FORMATS: Mapping[FormatName, Format] = {
    "png": Format.PNG,
    "webp": Format.WEBP,
    "jpeg": Format.JPEG,
    "ppm": Format.PNM,
}
_PREVIEW = Encoding(Format.JPEG, quality=75)


def encoded(pixels: Pixels, settings: Settings, model: str, seed: int) -> File:
    """The file of a picture (height, width, 3)."""
    output = settings.output
    encoding = Encoding(
        _FORMATS[output.format], output.quality, output.lossless, output.webp_method
    )
    parameters = {KEYWORD: parameters_of(settings, model, seed)} if output.parameters else None
    made = encode(Picture(pixels), encoding, parameters)
    return File(made.data, made.mime_type)


def encoded_preview(pixels: Pixels, max_px: int) -> bytes:
    """A JPEG whose longest side is at most `max_px`."""
    height_px, width_px = pixels.shape[:2]
    scale = min(1.0, max_px / max(height_px, width_px))
    small = resize(pixels, max(1, round(width_px * scale)), max(1, round(height_px * scale)))
    return encode(Picture(small), _PREVIEW).data


def parameters_of(settings: Settings, model: str, seed: int) -> str:
    """As people and their tools expect to read it."""
    said = {
        "Steps": str(settings.steps),
        "Sampler": settings.sampler,
        "Schedule type": settings.scheduler,
        "CFG scale": f"{settings.guidance:g}",
        "Distilled CFG Scale": f"{settings.distilled_guidance:g}",
        "Seed": str(seed),
        "Size": f"{settings.size.width_px}x{settings.size.height_px}",
        "Model": model,
        "Version": "Cohabit",
    }
    if settings.strength is not None:
        said["Denoising strength"] = f"{settings.strength:g}"
    if settings.clip_skip:
        said["Clip skip"] = str(settings.clip_skip)
    if settings.eta is not None:
        said["Eta"] = f"{settings.eta:g}"
    if settings.loras:
        said["Lora"] = ", ".join(f"{lora.name}: {lora.scale:g}" for lora in settings.loras)
    return parameters_text(settings.prompt, settings.negative_prompt, said)
