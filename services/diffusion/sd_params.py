"""A model's spec and a picture's settings → the native library's structures. Nothing is run here.

The structures hold bare pointers, so what they point to is kept beside them.
"""

import ctypes
import os
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import stable_diffusion_cpp.stable_diffusion_cpp as sd

from imaging.values import Pixels
from services.diffusion.engine import EngineSpec, Role, SamplerName, SchedulerName, Tiling
from services.diffusion.painter import Sketch
from services.diffusion.values import Settings

_SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)
_SCHEDULERS: tuple[SchedulerName, ...] = get_args(SchedulerName)
_LATENT_PX = 8
_MODEL_DEFAULT = -1
_AT_RUNTIME = int(sd.LoraApplyMode.LORA_APPLY_AT_RUNTIME)
"""Adapters are computed beside the weights and never added to them: afterwards the weights are
those of before, bit for bit. The library's own choice would add and subtract them."""
_PATHS: dict[Role, str] = {
    "model": "model_path",
    "diffusion_model": "diffusion_model_path",
    "vae": "vae_path",
    "taesd": "taesd_path",
    "clip_l": "clip_l_path",
    "clip_g": "clip_g_path",
    "t5xxl": "t5xxl_path",
    "llm": "llm_path",
    "llm_vision": "llm_vision_path",
}


@dataclass(slots=True)
class Call:
    """A structure, and what it points to."""

    params: Any
    kept: list[object] = field(default_factory=list)

    def image(self, pixels: Pixels) -> Any:
        """(height, width) or (height, width, 3), uint8."""
        pixels = np.ascontiguousarray(pixels)
        self.kept.append(pixels)
        height, width = pixels.shape[:2]
        channels = pixels.shape[2] if pixels.ndim == 3 else 1
        data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        return sd.sd_image_t(width, height, channels, data)


def context_call(spec: EngineSpec) -> Call:
    """How the model is loaded."""
    params = _initial(sd.sd_ctx_params_t, "sd_ctx_params_init")
    for role, path in spec.files.items():
        setattr(params, _PATHS[role], os.fsencode(path))
    place = spec.placement
    params.vae_decode_only = False
    params.free_params_immediately = False
    params.lora_apply_mode = _AT_RUNTIME
    params.n_threads = place.threads
    params.diffusion_flash_attn = place.flash_attention
    params.offload_params_to_cpu = place.offload_to_cpu
    params.keep_clip_on_cpu = place.clip_on_cpu
    params.keep_vae_on_cpu = place.vae_on_cpu
    params.enable_mmap = place.mmap
    params.diffusion_conv_direct = place.diffusion_conv_direct
    params.vae_conv_direct = place.vae_conv_direct
    params.tae_preview_only = place.taesd_previews_only
    return Call(params)


def picture_call(spec: EngineSpec, sketch: Sketch) -> Call:
    """How one picture is made."""
    settings, inputs = sketch.settings, sketch.inputs
    params = _initial(sd.sd_img_gen_params_t, "sd_img_gen_params_init")
    call = Call(params)
    params.prompt = settings.prompt.encode(errors="replace")
    params.negative_prompt = settings.negative_prompt.encode(errors="replace")
    params.width, params.height = settings.size.width_px, settings.size.height_px
    params.seed, params.batch_count = sketch.seed, 1
    params.clip_skip = settings.clip_skip or _MODEL_DEFAULT
    if settings.strength is not None:
        params.strength = settings.strength
    _set_sampling(params.sample_params, spec, settings)
    _set_loras(call, settings)
    if settings.tiled:
        params.vae_tiling_params = _tiles(spec.tiling)
    if inputs.init is not None:
        params.init_image = call.image(inputs.init)
    if inputs.mask is not None:
        params.mask_image = call.image(inputs.mask)
    if inputs.references:
        images = (sd.sd_image_t * len(inputs.references))(*map(call.image, inputs.references))
        call.kept.append(images)
        params.ref_images, params.ref_images_count = images, len(inputs.references)
        params.auto_resize_ref_image = params.increase_ref_index = True
    return call


def _initial(kind: Any, function: str) -> Any:
    """A structure with the library's own defaults in it."""
    params = kind()
    getattr(sd._lib, function)(ctypes.byref(params))  # noqa: SLF001 - bound by nobody
    return params


def _set_sampling(sampling: Any, spec: EngineSpec, settings: Settings) -> None:
    sampling.sample_steps = settings.steps
    sampling.sample_method = _SAMPLERS.index(settings.sampler)
    sampling.scheduler = _SCHEDULERS.index(settings.scheduler)
    sampling.guidance.txt_cfg = settings.guidance
    sampling.guidance.distilled_guidance = settings.distilled_guidance
    if settings.image_guidance is not None:
        sampling.guidance.img_cfg = settings.image_guidance
    if settings.eta is not None:
        sampling.eta = settings.eta
    if spec.flow_shift is not None:
        sampling.flow_shift = spec.flow_shift


def _set_loras(call: Call, settings: Settings) -> None:
    if not settings.loras:
        return
    loras = (sd.sd_lora_t * len(settings.loras))()
    for native, lora in zip(loras, settings.loras, strict=True):
        native.path, native.multiplier = os.fsencode(lora.file), lora.scale
    call.kept.append(loras)
    call.params.loras, call.params.lora_count = loras, len(settings.loras)


def _tiles(tiling: Tiling) -> Any:
    side = max(1, tiling.tile_px // _LATENT_PX)
    return sd.sd_tiling_params_t(True, side, side, tiling.overlap, 0.0, 0.0)
