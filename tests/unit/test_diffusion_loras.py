"""Which file a LoRA request means, and that it is never one outside the directory."""

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from services.diffusion.loras import base_of, listed, resolve
from services.diffusion.values import AskedLora


def weights(path: Path, metadata: dict[str, str] | None = None, **tensor: Any) -> Path:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} | tensor
    read: dict[str, Any] = {"a.lora_down.weight": entry}
    if metadata:
        read["__metadata__"] = metadata
    raw = json.dumps(read).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(4))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "loras"
    weights(folder / "ink.safetensors")
    weights(folder / "one" / "weights.safetensors")
    weights(folder / "two" / "a.safetensors")
    weights(folder / "two" / "b.safetensors", {"ss_base_model_version": "sdxl_base_v1-0"})
    (folder / "quantised.gguf").write_bytes(b"GGUF" + bytes(20))
    (folder / "notes.txt").write_text("no weights")
    secret = weights(tmp_path / "secret.safetensors")
    (folder / "link.safetensors").symlink_to(secret)
    (folder / "linked").symlink_to(tmp_path)
    return folder


def found(folder: Path, lora_id: str, filename: str = "", family: str = "flux") -> Path:
    return resolve(AskedLora(lora_id, filename=filename), folder, family, "loras[0]")


@pytest.mark.parametrize(
    ("lora_id", "filename", "path"),
    [
        ("ink", "", "ink.safetensors"),
        ("ink.safetensors", "", "ink.safetensors"),
        ("ink", "ink.safetensors", "ink.safetensors"),
        ("one", "", "one/weights.safetensors"),
        ("two", "a.safetensors", "two/a.safetensors"),
        ("quantised", "", "quantised.gguf"),
    ],
)
def test_names_find_their_file(folder: Path, lora_id: str, filename: str, path: str) -> None:
    assert found(folder, lora_id, filename) == folder / path


@pytest.mark.parametrize(
    ("lora_id", "filename", "reason"),
    [
        ("", "", Reason.LORA_NOT_FOUND),
        ("gone", "", Reason.LORA_NOT_FOUND),
        ("notes.txt", "", Reason.LORA_NOT_FOUND),
        ("two", "c.safetensors", Reason.LORA_NOT_FOUND),
        ("two", "", Reason.INVALID_REQUEST),
        ("link", "", Reason.LORA_NOT_FOUND),
        ("linked", "secret.safetensors", Reason.LORA_NOT_FOUND),
        ("../secret", "", Reason.INVALID_REQUEST),
        ("..", "secret.safetensors", Reason.INVALID_REQUEST),
        (".", "ink.safetensors", Reason.INVALID_REQUEST),
        ("one", "../../secret.safetensors", Reason.INVALID_REQUEST),
        ("a\0b", "", Reason.INVALID_REQUEST),
        ("x" * 255, "", Reason.LORA_NOT_FOUND),
        ("x" * 10_000, "", Reason.INVALID_REQUEST),
        ("x" * 250, "", Reason.LORA_NOT_FOUND),  # too long once it has its ending
    ],
)
def test_others_find_none(folder: Path, lora_id: str, filename: str, reason: Reason) -> None:
    with pytest.raises(Fault) as caught:
        found(folder, lora_id, filename)
    assert caught.value.reason is reason
    assert str(folder) not in caught.value.message


NAMES = st.lists(st.sampled_from(["..", ".", "/", "0", "safetensors", "loras", "a"])).map("".join)


@given(lora_id=st.text(max_size=20) | NAMES, filename=st.text(max_size=20) | NAMES)
def test_no_name_leaves_the_directory(
    tmp_path_factory: pytest.TempPathFactory, lora_id: str, filename: str
) -> None:
    home = tmp_path_factory.getbasetemp() / "named"
    folder = home / "loras"
    if not folder.exists():
        weights(folder / "0.safetensors")
        weights(home / "0.safetensors")
    with suppress(Fault):
        assert found(folder, lora_id, filename).parent == folder


def test_without_a_directory_there_are_none() -> None:
    with pytest.raises(Fault) as caught:
        resolve(AskedLora("ink"), None, "flux", "loras[0]")
    assert caught.value.reason is Reason.LORA_NOT_FOUND


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 100,
        struct.pack("<Q", 1 << 60),
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 4) + b"nope",
        struct.pack("<Q", 50_000) + b"[" * 50_000,
    ],
)
def test_a_broken_file_is_refused_and_not_listed(folder: Path, content: bytes) -> None:
    (folder / "broken.safetensors").write_bytes(content)
    with pytest.raises(Fault, match="holds no weights"):
        found(folder, "broken")
    assert "broken" not in {file.lora_id for file in listed(folder)}


def test_a_file_that_is_cut_short_is_refused(folder: Path) -> None:
    weights(folder / "short.safetensors", data_offsets=[0, 400])
    with pytest.raises(Fault, match="cut short"):
        found(folder, "short")


def test_one_trained_for_another_family_is_refused(folder: Path) -> None:
    assert found(folder, "two", "b.safetensors", family="sdxl")
    with pytest.raises(Fault, match="trained for sdxl"):
        found(folder, "two", "b.safetensors", family="flux")


@pytest.mark.parametrize(
    ("metadata", "base"),
    [
        ({"modelspec.architecture": "flux-1-dev/lora"}, "flux"),
        ({"modelspec.architecture": "stable-diffusion-xl-v1-base/lora"}, "sdxl"),
        ({"ss_base_model_version": "sd_v1"}, "sd1"),
        ({"ss_base_model_version": "something new"}, ""),
        ({}, ""),
        (None, ""),
        (["odd"], ""),
    ],
)
def test_the_base_is_read_from_the_header(metadata: Any, base: str) -> None:
    assert base_of({"__metadata__": metadata}) == base


def test_the_list_names_what_requests_may_name(folder: Path) -> None:
    files = [(file.lora_id, file.filename, file.base) for file in listed(folder)]
    assert files == [
        ("ink", "", ""),
        ("one", "", ""),
        ("quantised", "", ""),
        ("two", "a.safetensors", ""),
        ("two", "b.safetensors", "sdxl"),
    ]
    assert [file.filename for file in listed(folder, "flux")] == ["", "", "", "a.safetensors"]
    for file in listed(folder):
        assert found(folder, file.lora_id, file.filename, file.base or "flux") == file.path
    assert listed(folder / "nowhere") == []
