"""cohabit.diffusion.v1 requests → what was asked. Answers go the other way in `wire_answer.py`."""

from typing import TypeVar, get_args

from chassis.errors import not_implemented
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from services.diffusion.engine import FormatName, SamplerName, SchedulerName, TilingName
from services.diffusion.limits import wrong
from services.diffusion.values import Asked, AskedLora, AskedOutput, AskedPreviews

SAMPLERS: tuple[SamplerName | None, ...] = (None, *get_args(SamplerName))
SCHEDULERS: tuple[SchedulerName | None, ...] = (None, *get_args(SchedulerName))
_TILINGS: tuple[TilingName | None, ...] = (None, "auto", "on", "off")
T = TypeVar("T")
_FORMATS: tuple[FormatName | None, ...] = (None, "png", "webp", "jpeg", "ppm")


def asked_of(request: pb.GenerateRequest) -> Asked:
    """Raises Fault INVALID_REQUEST for values that there are not, NOT_IMPLEMENTED."""
    if request.HasField("identity"):
        raise not_implemented("Conditioning on a person's identity")
    if request.reuse.latent_replay:
        raise not_implemented("Starting from the latent of an earlier request")
    return Asked(
        prompt=request.prompt,
        negative_prompt=request.negative_prompt,
        width_px=request.width_px,
        height_px=request.height_px,
        steps=request.steps,
        guidance=_given(request, "guidance"),
        distilled_guidance=_given(request, "distilled_guidance"),
        image_guidance=_given(request, "image_guidance"),
        sampler=_named("sampler", SAMPLERS, request.sampler),
        scheduler=_named("scheduler", SCHEDULERS, request.scheduler),
        seed=request.seed if request.HasField("seed") else None,
        batch=request.batch or 1,
        loras=tuple(_lora(lora) for lora in request.loras),
        tiling=tiling_of(request.vae_tiling),
        init_image=request.init_image.data,
        strength=_given(request, "strength"),
        mask=request.mask.data,
        reference_images=tuple(media.data for media in request.reference_images),
        output=_output(request.output),
        previews=AskedPreviews(request.preview.every_steps, request.preview.max_px),
        clip_skip=request.clip_skip,
        eta=_given(request, "eta"),
        no_result_cache=request.reuse.no_result_cache,
        transient_lease_id=request.transient_lease_id,
        transient_mib=request.transient_mib,
    )


def tiling_of(value: int) -> TilingName | None:
    """None: left open. Raises Fault INVALID_REQUEST."""
    return _named("vae_tiling", _TILINGS, value)


def _given(request: pb.GenerateRequest, name: str) -> float | None:
    """A field that may be unset; as short as it was before it became a float of 32 bits."""
    if not request.HasField(name):  # type: ignore[arg-type]
        return None
    return float(f"{getattr(request, name):.7g}")


def _lora(lora: pb.Lora) -> AskedLora:
    scale = lora.scale if lora.HasField("scale") else 1.0
    return AskedLora(lora.lora_id, lora.path, lora.filename, float(f"{scale:.7g}"))


def _output(output: pb.ImageOutput) -> AskedOutput:
    return AskedOutput(
        _named("output.format", _FORMATS, output.format),
        output.quality,
        output.lossless,
        output.omit_parameters,
    )


def _named(param: str, names: tuple[T, ...], value: int) -> T:
    if not 0 <= value < len(names):
        raise wrong(param, f"has no value {value}; leave it out for the default")
    return names[value]
