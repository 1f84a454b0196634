"""Encoding: what is written comes back, hides nothing under alpha 0, and says how it was made."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from PIL import Image

from chassis.errors import Fault, Reason
from imaging.decode import decode, decode_gray
from imaging.encode import encode
from imaging.parameters import KEYWORD, parameters_text
from imaging.values import Bounds, Encoding, Format, Picture
from tests.picture_forge import pattern

_BOUNDS = Bounds()
_RGB = np.array(pattern())
_LOSSLESS = [
    Encoding(Format.PNG),
    Encoding(Format.WEBP, lossless=True, quality=50),
    Encoding(Format.PNM),
]
_SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@st.composite
def _pictures(draw: st.DrawFn) -> Picture:
    size = draw(_SIZES)
    rgb = draw(st_np.arrays(np.uint8, (*size, 3)))
    alpha = draw(st.none() | st_np.arrays(np.uint8, size))
    return Picture(rgb, alpha)


@settings(max_examples=60, deadline=None)
@given(_pictures(), st.sampled_from(_LOSSLESS))
def test_without_loss_what_is_seen_comes_back(picture: Picture, encoding: Encoding) -> None:
    back = decode(encode(picture, encoding).data, _BOUNDS, "image")
    if picture.alpha is None or picture.alpha.min() == 255:
        assert back.alpha is None
        assert np.array_equal(back.rgb, picture.rgb)
        return
    assert back.alpha is not None
    assert np.array_equal(back.alpha, picture.alpha)
    seen = picture.alpha > 0
    assert np.array_equal(back.rgb[seen], picture.rgb[seen])
    assert not back.rgb[~seen].any()


@settings(max_examples=40, deadline=None)
@given(_SIZES.flatmap(lambda size: st_np.arrays(np.uint8, size)), st.sampled_from(_LOSSLESS))
def test_a_matte_comes_back(matte: np.ndarray, encoding: Encoding) -> None:
    assert np.array_equal(decode_gray(encode(matte, encoding).data, _BOUNDS, "mask"), matte)


@pytest.mark.parametrize("lossless", [False, True])
def test_webp_keeps_black_what_is_not_seen(lossless: bool) -> None:
    """Also in blocks of 8 x 8 of which a part is seen: writers like to fill those up."""
    alpha = np.zeros((32, 48), np.uint8)
    alpha[:, 20:] = 255
    picture = Picture(np.full((32, 48, 3), 200, np.uint8), alpha)
    data = encode(picture, Encoding(Format.WEBP, lossless=lossless)).data
    back = np.asarray(Image.open(io.BytesIO(data)))
    assert back[:, :19, :3].max() <= 16
    assert back[:, 21:, :3].min() >= 184


def test_the_type_says_what_was_written() -> None:
    picture = Picture(_RGB)
    alpha = Picture(_RGB, np.zeros((32, 48), np.uint8))
    assert encode(picture, Encoding(Format.PNG)).mime_type == "image/png"
    assert encode(picture, Encoding()).mime_type == "image/webp"
    assert encode(picture, Encoding(Format.JPEG)).mime_type == "image/jpeg"
    pnm = Encoding(Format.PNM)
    assert encode(picture, pnm).mime_type == "image/x-portable-pixmap"
    assert encode(alpha, pnm).mime_type == "image/x-portable-arbitrarymap"
    assert encode(_RGB[..., 0], pnm).mime_type == "image/x-portable-graymap"


def test_quality_is_obeyed() -> None:
    noise = Picture(np.random.default_rng(1).integers(0, 256, (64, 64, 3), np.uint8))
    for form in (Format.JPEG, Format.WEBP):
        sizes = [len(encode(noise, Encoding(form, quality=q)).data) for q in (10, 50, 95)]
        assert sizes == sorted(set(sizes))


def test_jpeg_refuses_transparency() -> None:
    with pytest.raises(Fault, match="no transparency") as raised:
        encode(
            Picture(_RGB, np.zeros((32, 48), np.uint8)),
            Encoding(Format.JPEG),
            field="output.format",
        )
    assert raised.value.reason is Reason.INVALID_REQUEST
    assert raised.value.metadata == {"param": "output.format"}


def test_webp_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(Fault, match="16383 pixels on a side; ask for png"):
        encode(Picture(np.zeros((1, 16_384, 3), np.uint8)), Encoding())
    assert encode(Picture(np.zeros((1, 16_383, 3), np.uint8)), Encoding()).data
    assert encode(Picture(np.zeros((1, 16_384, 3), np.uint8)), Encoding(Format.PNG)).data


_TEXT = parameters_text(
    "a cät, 猫 by the sea", "blurry", {"Steps": "20", "Sampler": "Euler a", "Size": "512x512"}
)


def test_parameters_as_people_write_them() -> None:
    assert _TEXT.splitlines() == [
        "a cät, 猫 by the sea",
        "Negative prompt: blurry",
        "Steps: 20, Sampler: Euler a, Size: 512x512",
    ]
    assert parameters_text("a", "", {"Model": "b, c: d"}) == 'a\nModel: "b, c: d"'
    assert parameters_text("a", "", {}) == "a"


@pytest.mark.parametrize("text", [_TEXT, "plain", "a\0b", "x" * 100_000, "\ud800"])
def test_png_says_how_it_was_made(text: str) -> None:
    data = encode(Picture(_RGB), Encoding(Format.PNG), {KEYWORD: text}).data
    said = Image.open(io.BytesIO(data)).text[KEYWORD]  # type: ignore[attr-defined]
    assert said == text.replace("\0", "").replace("\ud800", "?")[:30_000]


@pytest.mark.parametrize("form", [Format.JPEG, Format.WEBP])
@pytest.mark.parametrize("text", [_TEXT, "plain", "x" * 100_000, "🐈" * 40_000])
def test_jpeg_and_webp_say_how_they_were_made(form: Format, text: str) -> None:
    data = encode(Picture(_RGB), Encoding(form), {KEYWORD: text}).data
    comment = Image.open(io.BytesIO(data)).getexif().get_ifd(0x8769)[0x9286]
    assert comment.startswith(b"UNICODE\0")
    said = comment[8:].decode("utf-16-be")
    assert said
    assert text.startswith(said)
    assert len(said) == len(text) or len(comment) > 59_000


def test_nothing_is_said_unasked() -> None:
    for form in (Format.JPEG, Format.WEBP, Format.PNG):
        image = Image.open(io.BytesIO(encode(Picture(_RGB), Encoding(form)).data))
        assert not dict(image.getexif())
        assert not getattr(image, "text", {})


def test_the_same_picture_is_the_same_bytes() -> None:
    for form in Format:
        made = [encode(Picture(_RGB), Encoding(form), {KEYWORD: _TEXT}).data for _ in range(2)]
        assert made[0] == made[1]
