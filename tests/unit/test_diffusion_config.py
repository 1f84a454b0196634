"""Families, their files and defaults; what a spec is made of, and that it survives its journey."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from services.diffusion.config import DiffusionConfig
from services.diffusion.engine import EngineSpec, as_json, spec_of
from services.diffusion.families import FAMILIES, files_problem

FILES: dict[str, dict[str, Any]] = {
    "sd1": {"model": "m"},
    "sd2": {"diffusion_model": "d", "clip_l": "c", "vae": "v"},
    "sdxl": {"model": "m", "vae": "v"},
    "flux": {"diffusion_model": "d", "clip_l": "c", "t5xxl": "t", "taesd": "v"},
    "chroma": {"diffusion_model": "d", "t5xxl": "t", "vae": "v"},
    "qwen-image": {"diffusion_model": "d", "llm": "l", "vae": "v", "llm_vision": "s"},
    "z-image": {"diffusion_model": "d", "llm": "l", "vae": {"path": "v", "source": "hf:a/b/v"}},
    "ovis-image": {"diffusion_model": "d", "llm": "l", "vae": "v"},
}


def spec(family: str, *, on_card: bool = True, **model: Any) -> EngineSpec:
    values = {"models": {"m": {"family": family, "files": FILES[family]} | model}}
    config = DiffusionConfig.model_validate(values)
    return config.spec(config.models["m"], Path("/models"), on_card=on_card)


@pytest.mark.parametrize("family", FILES)
def test_a_spec_survives_the_pipe(family: str) -> None:
    made = spec(family, max_batch=3, peak={"denoise": {"per_mpx_mib": 7}})
    assert spec_of(json.loads(json.dumps(as_json(made)))) == made
    assert all(path.startswith("/models/") for path in made.files.values())
    assert made.peak.denoise.per_mpx_mib == 7


def test_every_family_that_is_built_is_tried_here() -> None:
    assert set(FILES) == {name for name, family in FAMILIES.items() if not family.why_not}


@pytest.mark.parametrize("family", FILES)
def test_each_file_that_is_needed_is_missed(family: str) -> None:
    assert files_problem(family, FILES[family]) == ""  # type: ignore[arg-type]
    for group in FAMILIES[family].needs:  # type: ignore[index]
        kept = [r for f in FAMILIES[family].needs if f is not group for r in f[:1]]  # type: ignore[index]
        problem = files_problem(family, kept)  # type: ignore[arg-type]
        assert f"needs the file '{group[0]}'" in problem


@pytest.mark.parametrize(
    ("family", "files", "words"),
    [
        ("sd1", {"model": "m", "t5xxl": "t"}, "has no file 't5xxl'"),
        ("sdxl", {"model": "m", "diffusion_model": "d"}, "not both"),
        ("chroma", {"model": "m"}, "has no file 'model'"),
        ("flux", {}, "or all parts in one file: 'model'"),
    ],
)
def test_files_that_do_not_go_together(family: str, files: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        DiffusionConfig.model_validate({"models": {"m": {"family": family, "files": files}}})


@pytest.mark.parametrize(
    "model",
    [
        {"sizes": {"max_px": 1_000_000}},
        {"sizes": {"max_side_px": 512}},
        {"sizes": {"min_side_px": 4096, "max_side_px": 2048}},
        {"defaults": {"width_px": 8192}},
    ],
)
def test_a_model_makes_at_least_its_default_size(model: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="sizes refuse the default size"):
        spec("sdxl", **model)


def test_videos_are_declared_and_refused() -> None:
    files = {"diffusion_model": "d", "t5xxl": "t", "vae": "v"}
    DiffusionConfig.model_validate({"models": {"m": {"family": "wan", "files": files}}})
    assert "does not build yet" in files_problem("wan", files)  # type: ignore[arg-type]


def test_what_is_said_goes_before_the_family() -> None:
    made = spec("z-image", defaults={"steps": 9}, sizes={"max_px": 2_000_000})
    assert (made.defaults.steps, made.defaults.guidance, made.defaults.sampler) == (9, 1.0, "euler")
    assert (made.sizes.max_px, made.sizes.multiple_px) == (2_000_000, 16)


@pytest.mark.parametrize(
    ("family", "said", "expected"),
    [("z-image", None, 1.0), ("flux", 0.5, 0.5), ("sdxl", None, None), ("sdxl", 1, 1.0)],
)
def test_an_exact_zero_of_guidance(family: str, said: float | None, expected: object) -> None:
    more: dict[str, Any] = {} if said is None else {"zero_guidance": said}
    assert spec(family, **more).zero_guidance == expected


@pytest.mark.parametrize(("word", "expected"), [(True, "on"), (False, "off"), ("auto", "auto")])
def test_bare_words_of_yaml(word: object, expected: str) -> None:
    assert spec("sd1", tiling={"default": word}).tiling.default == expected


def test_the_decoder_decides_the_peak() -> None:
    assert spec("sdxl").peak.decode.per_mpx_mib == 6656
    assert spec("sdxl", placement={"vae_conv_direct": True}).peak.decode.per_mpx_mib == 2944
    assert spec("sdxl", placement={"vae_on_cpu": True}).peak.decode.per_mpx_mib == 0
    assert (
        spec("sdxl", on_card=False, placement={"vae_on_cpu": True}).peak.decode.per_mpx_mib == 6656
    )
    assert spec("flux").peak.decode.per_mpx_mib == 1950  # taesd
    assert spec("flux").peak.preview.per_mpx_mib == 1950
    assert spec("flux", placement={"vae_on_cpu": True}).peak.preview.per_mpx_mib == 0
    assert spec("sdxl", placement={"flash_attention": False}).peak.denoise.per_mpx2_mib == 800
