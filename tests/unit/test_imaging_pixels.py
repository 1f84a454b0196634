"""Colours, scaling and composing, beside oracles that are slow and plain."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from chassis.errors import Fault, Reason
from imaging.color import parse_color
from imaging.compose import blacken, over
from imaging.scale import cover, resize
from imaging.values import Picture
from tests.picture_forge import in_mode, pattern

_BYTE = st.integers(0, 255)


@pytest.mark.parametrize(
    ("text", "color"),
    [
        ("#fff", (255, 255, 255)),
        ("#1a2B3c", (0x1A, 0x2B, 0x3C)),
        (" White ", (255, 255, 255)),
        ("rebeccapurple", (102, 51, 153)),
        ("DarkSlateGray", (47, 79, 79)),
    ],
)
def test_colours(text: str, color: tuple[int, int, int]) -> None:
    assert parse_color(text, "background") == color


@pytest.mark.parametrize(
    "text",
    ["", "#", "#ff", "#ffff", "#ffffffff", "fff", "rgb(1,2,3)", "hsl(0,0%,0%)", "transparent",
     "no such", "#ggg", "#fff\n#000", "white;", "x" * 10_000],
)  # fmt: skip
def test_what_is_no_colour(text: str) -> None:
    with pytest.raises(Fault) as raised:
        parse_color(text, "background")
    assert raised.value.reason is Reason.INVALID_REQUEST
    assert raised.value.metadata == {"param": "background"}
    assert len(raised.value.message) < 250


@given(_BYTE, _BYTE, _BYTE)
def test_over_is_rounded_exactly(front: int, alpha: int, back: int) -> None:
    exact = Fraction(front * alpha + back * (255 - alpha), 255)
    done = over(
        np.full((1, 1, 3), front, np.uint8), np.full((1, 1), alpha, np.uint8), (back, back, back)
    )
    assert done.tolist() == [[[int(exact + Fraction(1, 2))] * 3]]


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_over_a_picture_in_bands(height: int, width: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    front, back = chance.integers(0, 256, (2, height, width, 3), np.uint8)
    alpha = chance.integers(0, 256, (height, width), np.uint8)
    share = alpha[..., None].astype(np.int64)
    plain = (2 * (front * share + back * (255 - share)) + 255) // 510
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("imaging.compose._BAND_PX", 64)
        assert np.array_equal(over(front, alpha, back), plain)


def test_over_refuses_another_size() -> None:
    rgb = np.array(pattern())
    with pytest.raises(ValueError, match="backdrop"):
        over(rgb, rgb[..., 0], rgb[:5])


@given(st_np.arrays(np.uint8, (3, 4, 3)), st_np.arrays(np.uint8, (3, 4)))
def test_what_nobody_sees_is_black(rgb: np.ndarray, alpha: np.ndarray) -> None:
    before = rgb.copy()
    done = blacken(Picture(rgb, alpha))
    assert done.rgb.dtype == np.uint8
    assert not done.rgb[alpha == 0].any()
    assert np.array_equal(done.rgb[alpha > 0], rgb[alpha > 0])
    assert np.array_equal(rgb, before)


@given(st.integers(1, 60), st.integers(1, 60), _BYTE)
def test_scaling_keeps_a_flat_picture_flat(width: int, height: int, value: int) -> None:
    done = resize(np.full((20, 30), value, np.uint8), width, height)
    assert done.shape == (height, width)
    assert (done == value).all()


def test_scaling_down_averages() -> None:
    board = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    inner = resize(board, 8, 8)[1:-1, 1:-1].astype(int)
    assert np.abs(inner - 127).max() <= 2


@given(*[st.integers(1, 50)] * 4)
@settings(deadline=None)
def test_cover_fills_the_size(width: int, height: int, into_w: int, into_h: int) -> None:
    picture = Picture(np.full((height, width, 3), 77, np.uint8))
    done = cover(picture, into_w, into_h)
    assert (done.width_px, done.height_px) == (into_w, into_h)
    assert (done.rgb == 77).all()


def test_cover_keeps_the_middle() -> None:
    rgb = np.zeros((10, 30, 3), np.uint8)
    rgb[:, 10:20] = 200
    assert (cover(Picture(rgb), 10, 10).rgb == 200).all()


def test_colours_do_not_bleed_from_where_nothing_is_seen() -> None:
    whole = np.array(in_mode("RGBA", 64, 64))
    rgb, alpha = np.full((64, 64, 3), 200, np.uint8), np.where(whole[..., 2], 255, 0)
    rgb[alpha == 0] = 0
    done = cover(Picture(rgb, alpha.astype(np.uint8)), 24, 24)
    assert done.alpha is not None
    assert np.abs(done.rgb[done.alpha > 30].astype(int) - 200).max() <= 4
