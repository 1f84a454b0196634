"""What is chosen reaches the native library's structures, each under the library's own name."""

import ctypes
from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np
import pytest
import stable_diffusion_cpp.stable_diffusion_cpp as sd

from services.diffusion import sd_callbacks
from services.diffusion.core.sizes import Settled
from services.diffusion.engine import (
    ROLES,
    EngineSpec,
    Placement,
    SamplerName,
    SchedulerName,
    Tiling,
)
from services.diffusion.painter import Inputs, Sketch
from services.diffusion.sd_params import context_call, picture_call
from services.diffusion.settling import trial
from services.diffusion.values import Lora

SPEC = EngineSpec("sdxl", {"model": "/m"}, placement=Placement(threads=3))
KNOBS = {
    "flash_attention": "diffusion_flash_attn",
    "offload_to_cpu": "offload_params_to_cpu",
    "clip_on_cpu": "keep_clip_on_cpu",
    "vae_on_cpu": "keep_vae_on_cpu",
    "mmap": "enable_mmap",
    "diffusion_conv_direct": "diffusion_conv_direct",
    "vae_conv_direct": "vae_conv_direct",
    "taesd_previews_only": "tae_preview_only",
}
SETTINGS = trial(SPEC, Settled(64, 96, rounded=False))


def simple(params: Any) -> dict[str, Any]:
    """Its fields that are numbers, words or flags."""
    found = {name: getattr(params, name) for name, _ in params._fields_}
    return {name: value for name, value in found.items() if isinstance(value, int | float | bytes)}


def changed(before: Any, after: Any) -> dict[str, Any]:
    old = simple(before)
    return {name: value for name, value in simple(after).items() if old.get(name) != value}


def picture(inputs: Inputs | None = None, spec: EngineSpec = SPEC, **settings: Any) -> Any:
    sketch = Sketch(replace(SETTINGS, **settings), 7, inputs or Inputs())
    call = picture_call(spec, sketch)
    call.params.kept = call.kept  # what it points to lives as long
    return call.params


def test_every_knob_turns_its_own_field_and_no_other() -> None:
    assert {field.name for field in fields(Placement)} == KNOBS.keys() | {"threads"}
    base = context_call(SPEC).params
    for knob, name in KNOBS.items():
        value = not getattr(SPEC.placement, knob)
        turned = replace(SPEC, placement=replace(SPEC.placement, **{knob: value}))
        assert changed(base, context_call(turned).params) == {name: value}
    assert base.n_threads == 3


def test_every_file_has_its_own_field() -> None:
    base = context_call(replace(SPEC, files={})).params
    for role in ROLES:
        given = context_call(replace(SPEC, files={role: "/weights"})).params
        assert changed(base, given) == {f"{role}_path": b"/weights"}


def test_adapters_are_never_added_to_the_weights() -> None:
    assert context_call(SPEC).params.lora_apply_mode == sd.LoraApplyMode.LORA_APPLY_AT_RUNTIME
    loras = (Lora("a", "/a", 0.5, "x"), Lora("b", "/b", -1.0, "y"))
    params = picture(loras=loras)
    given = [(params.loras[at].path, params.loras[at].multiplier) for at in range(2)]
    assert (params.lora_count, given) == (2, [(b"/a", 0.5), (b"/b", -1.0)])


@pytest.mark.parametrize(
    ("names", "setting", "field", "table"),
    [
        (get_args(SamplerName), "sampler", "sample_method", "sample_method_to_str"),
        (get_args(SchedulerName), "scheduler", "scheduler", "scheduler_to_str"),
    ],
)
def test_names_are_what_the_library_calls_them(
    names: tuple[str, ...], setting: str, field: str, table: str
) -> None:
    called = (ctypes.c_char_p * len(names)).in_dll(sd._lib, table)
    for name in names:
        chosen: dict[str, Any] = {setting: name}
        number = getattr(picture(**chosen).sample_params, field)
        word = (called[number] or b"").decode().replace("++", "pp")
        assert word.replace("_", "") == name.replace("_", "")


def test_previews_are_shown_by_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[tuple[int, int]] = []

    def spied(_callback: Any, mode: int, every: int, *_: Any) -> None:
        modes.append((mode, every))

    monkeypatch.setattr(sd, "sd_set_preview_callback", spied)
    sd_callbacks.show_previews(0, small_decoder=True)
    sd_callbacks.show_previews(2, small_decoder=False)
    sd_callbacks.show_previews(3, small_decoder=True)
    kind = sd.Preview
    assert modes == [(kind.PREVIEW_NONE, 1), (kind.PREVIEW_PROJ, 2), (kind.PREVIEW_TAE, 3)]


def test_tiles_have_the_size_and_overlap_of_the_model() -> None:
    assert not picture().vae_tiling_params.enabled
    tiled = picture(spec=replace(SPEC, tiling=Tiling(tile_px=512, overlap=0.25)), tiled=True)
    tiles = tiled.vae_tiling_params
    assert tiles.enabled
    assert (tiles.tile_size_x, tiles.tile_size_y, tiles.target_overlap) == (64, 64, 0.25)


def test_numbers_reach_the_picture() -> None:
    spec = replace(SPEC, flow_shift=2.5)
    params = picture(
        spec=spec,
        steps=9,
        guidance=4.5,
        distilled_guidance=2.25,
        image_guidance=1.25,
        eta=0.5,
        clip_skip=2,
        strength=0.25,
        prompt="a cät",
        negative_prompt="dög",
    )
    sampling = params.sample_params
    assert (sampling.sample_steps, sampling.eta, sampling.flow_shift) == (9, 0.5, 2.5)
    guidance = sampling.guidance
    assert (guidance.txt_cfg, guidance.distilled_guidance, guidance.img_cfg) == (4.5, 2.25, 1.25)
    assert (params.width, params.height, params.seed, params.batch_count) == (64, 96, 7, 1)
    assert (params.clip_skip, params.strength) == (2, 0.25)
    assert (params.prompt.decode(), params.negative_prompt.decode()) == ("a cät", "dög")


def test_pictures_reach_it_as_they_are() -> None:
    chance = np.random.default_rng(0)
    init, look = (chance.integers(0, 256, (96, 64, 3), np.uint8) for _ in range(2))
    mask = chance.integers(0, 256, (96, 64), np.uint8)
    params = picture(Inputs(init, mask, (look, init)))
    assert (sd_callbacks.pixels_of(params.init_image) == init).all()
    assert (params.mask_image.width, params.mask_image.height) == (64, 96)
    assert params.mask_image.channel == 1
    assert (np.ctypeslib.as_array(params.mask_image.data, (96, 64)) == mask).all()
    assert params.ref_images_count == 2
    assert (sd_callbacks.pixels_of(params.ref_images[0]) == look).all()
