"""What `cohabit paint` and `cohabit cutout` ask for, and what they say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.console import Refused
from cli.pictures import cutout, paint
from cli.pictures.cutting import request_of as removal_of
from cli.pictures.files import Format, format_of, read_picture
from cli.pictures.painting import Painted, lora_of, request_of, size_of, words
from cli.pictures.waiting import stage
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.matte.v1 import matte_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2

sides = st.integers(1, 99_999)


@given(sides, sides)
def test_sizes_are_read(width_px: int, height_px: int) -> None:
    assert size_of(f"{width_px}x{height_px}") == (width_px, height_px)


@pytest.mark.parametrize(
    "written",
    ["", "512", "512x", "x512", "512X512", "0x512", "-1x2", "1x2x3", "512 x 512", "9" * 6],
)
def test_what_is_no_size_is_refused(written: str) -> None:
    with pytest.raises(Refused, match="is no size"):
        size_of(written)


@given(st.from_regex(r"[a-z:/.]{0,20}[a-z]", fullmatch=True), st.floats(-4, 4, width=32))
def test_loras_are_read(name: str, scale: float) -> None:
    assert lora_of(f"{name}:{scale}") == pb.Lora(lora_id=name, scale=scale)


def test_a_lora_alone_is_applied_as_it_is() -> None:
    assert lora_of("ink") == pb.Lora(lora_id="ink", scale=1)


@pytest.mark.parametrize("written", ["", ":1", "ink:", "ink:much", "ink:nan", "ink:inf"])
def test_what_is_no_lora_is_refused(written: str) -> None:
    with pytest.raises(Refused, match="is no LoRA"):
        lora_of(written)


def test_what_is_left_open_is_left_to_the_model() -> None:
    bare = request_of("sdxl", "a lake", Format.WEBP)
    output = pb.ImageOutput(format=pb.IMAGE_FORMAT_WEBP)
    assert bare == pb.GenerateRequest(model="sdxl", prompt="a lake", output=output)
    assert not bare.HasField("seed")
    full = request_of(
        "sdxl", "a", Format.PNG, negative="b", size="64x32", steps=3, seed=0, loras=["ink:-1"]
    )
    assert (full.width_px, full.height_px, full.steps, full.negative_prompt) == (64, 32, 3, "b")
    assert full.HasField("seed")
    assert list(full.loras) == [pb.Lora(lora_id="ink", scale=-1)]


def test_formats_are_read_from_names() -> None:
    names = {"a.png": Format.PNG, "a.b.WebP": Format.WEBP, "a.jpg": Format.JPEG}
    assert {name: format_of(Path(name)) for name in names} == names
    for name in ("a", "a.gif", ".png", "png"):
        with pytest.raises(Refused, match="names no format"):
            format_of(Path(name))


def test_pictures_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.png"
    for there, why in ((None, "cannot be read"), (b"", "is empty")):
        if there is not None:
            file.write_bytes(there)
        with pytest.raises(Refused, match=why):
            read_picture(file)
    monkeypatch.setattr("cli.pictures.files._MOST_BYTES", 3)
    file.write_bytes(b"1234")
    with pytest.raises(Refused, match="has 4 B; a request takes 3 B"):
        read_picture(file)


def test_how_far_a_picture_is() -> None:
    progress = pb.GenerateResponse.Progress
    steps = progress(phase=pb.GenerateResponse.PHASE_DENOISE, done_steps=3, total_steps=4)
    assert words(steps) == ("step 3 of 4", 0.75)
    tiles = progress(phase=pb.GenerateResponse.PHASE_DECODE, done_steps=1, total_steps=9)
    assert words(tiles) == ("to pixels", 1.0)
    assert words(progress(phase=pb.GenerateResponse.PHASE_CONDITION)) == ("reading the prompt", 0.0)
    assert words(progress()) == ("painting", 0.0)


def test_what_a_picture_waits_for() -> None:
    status = scheduler_pb2.Status()
    ours = status.models.add(model_key="sdxl", state=models_pb2.MODEL_STATE_COLD)
    other = status.models.add(model_key="qwen", state=models_pb2.MODEL_STATE_READY)
    assert stage(status, "sdxl") == "waiting for its turn"
    ours.state = models_pb2.MODEL_STATE_LOADING
    assert stage(status, "sdxl") == "loading the model"
    other.leaving_for = "sdxl"
    assert stage(status, "sdxl") == "making room: qwen to leave"


def test_what_was_painted_in_words_and_for_scripts() -> None:
    painted = Painted(
        pb.GenerateResponse.Started(steps=20, size_rounded=True),
        pb.GenerateResponse.Image(
            width_px=64, height_px=48, seed=7, origin=pb.IMAGE_ORIGIN_EXACT_RESULT_CACHE
        ),
    )
    assert paint.line(painted, Path("a.png"), 1.26) == (
        "a.png: 64x48 (rounded to what the model takes), seed 7, 20 steps, 1.3 s"
    )
    said = json.loads(paint.as_json(painted, "sdxl", Path("a.png"), 1.26))
    assert (said["seed"], said["origin"], said["model"]) == (7, "exact_result_cache", "sdxl")


# -- cutouts -------------------------------------------------------------------------------------


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"photo")
    return path


def asked(
    photo: Path, form: Format = Format.WEBP, background: str | None = None, *, matte: bool = False
) -> matte_pb2.RemoveBackgroundRequest:
    return removal_of(photo, form, model="u2net", background=background, matte=matte)


def test_what_stands_behind_a_subject(photo: Path) -> None:
    assert not asked(photo).HasField("backdrop")
    assert not asked(photo, background="transparent").HasField("backdrop")
    assert asked(photo, background="#ff0000").backdrop.color == "#ff0000"
    assert asked(photo, background="white").backdrop.color == "white"
    assert asked(photo, background="estimated").backdrop.HasField("estimated")
    media = common_pb2.Media(data=b"photo")
    assert asked(photo, background=str(photo)).backdrop.image == media
    with pytest.raises(Refused, match="cannot be read"):
        asked(photo, background="./sea.jpg")


def test_what_contradicts_itself_is_refused(photo: Path) -> None:
    with pytest.raises(Refused, match="JPEG has no transparency"):
        asked(photo, Format.JPEG, "transparent")
    with pytest.raises(Refused, match="matte alone"):
        asked(photo, background="white", matte=True)
    assert asked(photo, Format.JPEG, "white").output.format == matte_pb2.IMAGE_FORMAT_JPEG
    assert asked(photo, Format.JPEG, matte=True).matte_only


def test_what_was_cut_out_in_words_and_for_scripts() -> None:
    answer = matte_pb2.RemoveBackgroundResponse(width_px=6, height_px=4, coverage=0.254)
    answer.matte.mime_type, answer.matte.data = "image/png", b"x"
    assert cutout.line(answer, Path("a.png"), 2.0) == "a.png: 6x4, 25% of it subject, 2.0 s"
    said = json.loads(cutout.as_json(answer, Path("a.png"), 2.0))
    assert (said["mime_type"], said["coverage"]) == ("image/png", 0.254)
