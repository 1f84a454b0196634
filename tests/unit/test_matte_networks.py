"""What networks are fed, what their answers mean, and what is said of files that are none."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from services.matte.networks import files
from services.matte.networks.families import FAMILIES, family_of
from services.matte.networks.prepare import to_input, to_matte

U2NET, BIREFNET = FAMILIES["u2net"], FAMILIES["birefnet"]


def test_inputs_are_the_normalised_picture_channels_first() -> None:
    grey = np.full((5, 9, 3), 255, np.uint8)
    grey[..., 2] = 0
    for family, divided in ((BIREFNET, 1.0), (FAMILIES["isnet"], 1.0), (U2NET, 1.0)):
        tensor = to_input(grey, family, 16)
        assert tensor.shape == (1, 3, 16, 16)
        assert tensor.dtype == np.float32
        wanted = [
            (value * divided - mean) / deviation
            for value, mean, deviation in zip((1, 1, 0), family.mean, family.deviation, strict=True)
        ]
        assert tensor[0, :, 3, 4].tolist() == pytest.approx(wanted, abs=1e-5)


def test_u2net_is_fed_what_is_relative_to_the_brightest_value() -> None:
    dark = np.full((4, 4, 3), 20, np.uint8)
    assert np.allclose(to_input(dark, U2NET, 8), to_input(dark * 10, U2NET, 8), atol=1e-5)
    assert not np.allclose(to_input(dark, BIREFNET, 8), to_input(dark * 10, BIREFNET, 8))
    assert np.isfinite(to_input(np.zeros((3, 3, 3), np.uint8), U2NET, 8)).all()


def test_an_answer_is_stretched_or_put_through_a_sigmoid() -> None:
    plane = np.array([[[[-1.0, 0.0], [1.0, 3.0]]]], np.float32)
    assert to_matte(plane, U2NET, 2, 2).tolist() == [[0, 64], [128, 255]]
    assert to_matte(plane, BIREFNET, 2, 2).tolist() == [[69, 128], [186, 243]]


def test_an_answer_without_contrast_is_not_made_a_subject() -> None:
    flat = np.full((1, 1, 4, 4), 0.25, np.float32)
    flat[0, 0, 1, 1] += 1e-6
    assert set(to_matte(flat, U2NET, 4, 4).ravel().tolist()) == {64}


def test_an_answer_that_is_no_number_is_no_matte() -> None:
    broken = np.full((1, 1, 4, 4), np.nan, np.float32)
    with pytest.raises(Fault) as caught:
        to_matte(broken, U2NET, 4, 4)
    assert caught.value.reason is Reason.ENGINE_CRASHED


@given(width_px=st.integers(1, 70), height_px=st.integers(1, 70), seed=st.integers(0, 99))
def test_mattes_have_the_size_of_the_picture(width_px: int, height_px: int, seed: int) -> None:
    plane = np.random.default_rng(seed).normal(size=(1, 1, 16, 16)).astype(np.float16)
    for family in FAMILIES.values():
        matte = to_matte(plane, family, width_px, height_px)
        assert matte.shape == (height_px, width_px)
        assert matte.dtype == np.uint8


@pytest.mark.parametrize(
    ("wanted", "name", "side_px", "inputs", "found"),
    [
        ("isnet", "u2netp.onnx", 320, "", "isnet"),
        ("auto", "u2netp.onnx", None, "", "u2net"),
        ("auto", "BiRefNet_lite.onnx", None, "", "birefnet"),
        ("auto", "isnet-general-use.onnx", 1024, "input_image", "isnet"),
        ("auto", "model.onnx", 320, "x", "u2net"),
        ("auto", "model.onnx", 1024, "input_image", "birefnet"),
        ("auto", "model.onnx", 1024, "x", "isnet"),
        ("auto", "model.onnx", None, "x", None),
    ],
)
def test_families_are_told_by_word_then_name_then_input(
    wanted: str, name: str, side_px: int | None, inputs: str, found: str | None
) -> None:
    assert family_of(wanted, name, side_px, inputs) == found  # type: ignore[arg-type]


def refused(path: Path, kind: str = "onnx") -> str:
    with pytest.raises(Fault) as caught:
        files.look(path, kind)  # type: ignore[arg-type]
    assert caught.value.reason is Reason.MODEL_FAILED
    assert path.name in caught.value.message
    return caught.value.message


GRAPH = b"\x08\x09\x3a\x03abc"
"""ir_version 9, and a graph of three bytes."""


def test_a_file_that_is_no_network_is_told_without_loading_it(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    assert "cannot be read" in refused(file)
    assert "is no file" in refused(tmp_path)
    for data in (
        b"",
        b"\x08\x09",
        GRAPH[:-1],
        GRAPH + b"\x3a",
        b"<html>",
        b"PK\x03\x04",
        b"\xff" * 99,
    ):
        file.write_bytes(data)
        assert "is no whole ONNX file" in refused(file)
    file.write_bytes(GRAPH)
    assert files.look(file, "onnx").size_bytes == len(GRAPH)
    (tmp_path / "net.onnx_data").write_bytes(b"12345")
    assert files.look(file, "onnx").size_bytes == len(GRAPH) + 5
    assert "is no whole file of torch.export or TorchScript" in refused(file, "torch-export")


@given(data=st.binary(max_size=64))
def test_no_bytes_break_the_look(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.onnx"
    file.write_bytes(data)
    for kind in ("onnx", "torch-export"):
        with suppress(Fault):  # and nothing else
            files.look(file, kind)
