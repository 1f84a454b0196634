"""Descriptions by files' headers: what is missing, broken or swapped is said in a sentence."""

import shutil
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from chassis.errors import Fault
from hosting.house_device import HOST, Device
from hosting.values import Kind as ModelKind
from services.diffusion import headers
from services.diffusion.catalog import PictureModel
from services.diffusion.config import DiffusionConfig
from services.diffusion.engine import spec_of
from services.diffusion.kinds import Kind, families_of, kind_of, problem_of
from tests.tiny_diffusion import make_tiny_diffusion

CARD = Device("gpu0", 24_000, "a card")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny_diffusion(folder, vae=True, lora=True)
    return folder


@pytest.fixture
def models(tiny: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    return tmp_path


def model(models_dir: Path, device: Device = HOST, **more: object) -> PictureModel:
    found = {path.stem: path.name for path in models_dir.glob("*.safetensors")}
    dit = next(name for stem, name in found.items() if "dit" in stem or "diffusion" in stem)
    llm = next(name for stem, name in found.items() if "llm" in stem)
    files = {"diffusion_model": dit, "llm": llm, "taesd": found["taesd"]}
    values = {"family": "ovis-image", "files": files} | more
    config = DiffusionConfig.model_validate({"models": {"tiny": values}})
    return PictureModel("tiny", config, models_dir, lambda: device)


def file_of(described: PictureModel, role: str) -> Path:
    return Path(described.engine.files[role])  # type: ignore[index]


def test_a_whole_model(models: Path) -> None:
    described = model(models).describe()
    assert described.problem == ""
    assert described.kind is ModelKind.DIFFUSION
    assert 200 < described.resident_mib < 230  # twelve MiB of weights, and a process
    assert described.peak_transient_mib > 0
    assert described.created_unix_ms > 0
    assert described.modalities == ("text",)
    assert spec_of(described.engine).family == "ovis-image"
    assert model(models, references=True).describe().modalities == ("text", "image")


def test_the_least_is_left_free_beside_it(models: Path) -> None:
    tiled, whole = (
        model(models, tiling={"default": word}).describe().peak_transient_mib
        for word in ("auto", "off")
    )
    assert 0 < tiled < whole


def test_videos_are_refused_with_a_sentence(tmp_path: Path) -> None:
    files = {"diffusion_model": "d", "t5xxl": "t", "vae": "v"}
    config = DiffusionConfig.model_validate({"models": {"m": {"family": "wan", "files": files}}})
    described = PictureModel("m", config, tmp_path).describe()
    assert "does not build yet" in described.problem
    assert described.resident_mib == 1


def test_weights_that_come_for_a_phase_are_in_its_peak(models: Path) -> None:
    there = model(models, CARD).describe()
    comes = model(models, CARD, placement={"offload_to_cpu": True}).describe()
    assert comes.resident_mib < there.resident_mib
    base = "base_mib"
    peaks = [one.engine["peak"]["denoise"][base] for one in (there, comes)]
    assert peaks[1] > peaks[0]
    on_cpu = model(models, CARD, placement={"clip_on_cpu": True}).describe()
    assert on_cpu.resident_mib < there.resident_mib


def test_another_device_is_another_description(models: Path) -> None:
    on_card = model(models, CARD)
    assert on_card.stamp() == model(models, CARD).stamp() != model(models).stamp()
    assert on_card.describe().resident_mib != model(models).describe().resident_mib
    assert spec_of(model(models).describe().engine).on_card_mib is None
    described = model(models, CARD, resident_mib=900).describe()
    assert spec_of(described.engine).on_card_mib == described.resident_mib == 900


def test_a_missing_file_comes_later(models: Path) -> None:
    source = model(models)
    path = file_of(source, "taesd")
    away = path.rename(path.with_suffix(".away"))
    before = source.stamp()
    described = source.describe()
    assert "taesd" in described.problem
    assert "is not there" in described.problem
    assert (described.resident_mib, described.peak_transient_mib) == (1, 0)
    away.rename(path)
    assert source.stamp() != before
    assert source.describe().problem == ""


@pytest.mark.parametrize(
    ("role", "other", "words"),
    [
        ("diffusion_model", "llm", "is a language model, where files.diffusion_model wants"),
        ("llm", "diffusion_model", "is a diffusion model alone, where files.llm wants a language"),
        ("taesd", "llm", "name it under 'llm'"),
    ],
)
def test_swapped_files(models: Path, role: str, other: str, words: str) -> None:
    source = model(models)
    shutil.copy(file_of(source, other), file_of(source, role))
    assert words in source.describe().problem


def test_another_decoder_and_a_lora(models: Path) -> None:
    source = model(models)
    vae, lora = models / "vae.safetensors", models / "lora.safetensors"
    shutil.copy(vae, file_of(source, "taesd"))
    assert "is an autoencoder, where files.taesd wants a small" in source.describe().problem
    shutil.copy(lora, file_of(source, "diffusion_model"))
    assert "is a LoRA" in source.describe().problem


def test_another_family(models: Path) -> None:
    source = model(models)
    config = DiffusionConfig.model_validate(
        {
            "models": {
                "m": {
                    "family": "z-image",
                    "files": dict(source.engine.files),
                }
            }
        }
    )
    described = PictureModel("m", config, models).describe()
    assert "is of family ovis-image, not z-image" in described.problem


@pytest.mark.parametrize("kept", [0, 4, 100, 3000, -1])
def test_a_file_that_was_cut_short(models: Path, kept: int) -> None:
    source = model(models)
    path = file_of(source, "diffusion_model")
    path.write_bytes(path.read_bytes()[:kept])
    assert "cannot be used" in source.describe().problem
    assert path.name in source.describe().problem


def test_a_header_that_is_no_header(tmp_path: Path) -> None:
    for at, junk in enumerate(
        (
            struct.pack("<Q", 2) + b"{}",
            struct.pack("<Q", 2) + b"[]",
            struct.pack("<Q", 12) + b'{"a": "word"}'[:12],
            struct.pack("<Q", 11) + b'{"a": {}}  ',
            b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0),
            b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 1 << 40),
            b"GGUF" + struct.pack("<IQQQIIIQ", 3, 1, 1, 0, 9, 9, 4, 1 << 60),
            b"GGUF" + struct.pack("<IQQ", 3, 0, 0),
            b"\xff" * 64,
        )
    ):
        path = tmp_path / f"{at}.safetensors"
        path.write_bytes(junk)
        with pytest.raises(Fault, match="cannot be used"):
            headers.read(path)


def test_gguf_files_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "t5.gguf"
    writer = gguf.GGUFWriter(path, "t5")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"] * 500)
    writer.add_array("numbers", [1, 2, 3])
    writer.add_string("general.name", "x")
    writer.add_tensor("enc.blk.0.attn_q.weight", np.zeros((64, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = headers.read(path)
    assert header.tensors == {"enc.blk.0.attn_q.weight"}
    assert 64 * 64 * 4 <= header.loaded_bytes <= 64 * 64 * 4 + 100
    assert kind_of(header.tensors) is Kind.T5


def test_narrow_floats_are_kept_wider(tmp_path: Path) -> None:
    path = tmp_path / "f8.safetensors"
    head = b'{"w": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}'
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(8))
    assert headers.read(path).loaded_bytes == 16


@pytest.mark.parametrize(
    ("name", "kind", "families"),
    [
        ("conditioner.embedders.0.transformer.text_model.x", Kind.WHOLE, {"sdxl"}),
        ("cond_stage_model.transformer.text_model.x", Kind.WHOLE, {"sd1"}),
        ("first_stage_model.decoder.conv_in.weight", Kind.WHOLE, set()),
        (
            "model.diffusion_model.double_blocks.0.x",
            Kind.DIFFUSION,
            {"flux", "chroma", "ovis-image"},
        ),
        ("transformer_blocks.0.img_mod.1.weight", Kind.DIFFUSION, {"qwen-image"}),
        ("noise_refiner.0.attention.qkv.weight", Kind.DIFFUSION, {"z-image"}),
        ("decoder.up.0.block.0.conv1.weight", None, set()),
        ("decoder.mid.attn_1.q.weight", Kind.VAE, set()),
        ("decoder.middle.0.residual.0.gamma", Kind.VAE, set()),
        ("decoder.layers.3.conv.0.weight", Kind.TAESD, set()),
        ("text_model.encoder.layers.0.mlp.fc1.weight", Kind.CLIP, set()),
        ("encoder.block.0.layer.0.SelfAttention.q.weight", Kind.T5, set()),
        ("blk.0.attn_q.weight", Kind.LLM, set()),
        ("model.layers.0.self_attn.q_proj.weight", Kind.LLM, set()),
        ("v.blk.0.attn_q.weight", Kind.VISION, set()),
        ("lora_unet_x.lora_down.weight", Kind.LORA, set()),
        ("anything.else", None, set()),
    ],
)
def test_kinds_by_names(name: str, kind: Kind | None, families: set[str]) -> None:
    assert kind_of([name]) is kind
    assert families_of([name]) == families


def test_names_that_tell_nothing_pass() -> None:
    assert problem_of("vae", "flux", ["anything.else"]) == ""
    assert problem_of("vae", "flux", []) == ""
