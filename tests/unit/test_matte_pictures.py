"""What is done with pictures around a network: alpha, colours, backdrops, bounds."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from chassis.errors import Fault, Reason
from imaging.values import Bounds, Encoded, Encoding, Format
from services.matte import picturing
from services.matte.values import (
    Composition,
    EdgeColor,
    EstimatedBackdrop,
    Estimation,
    PictureBackdrop,
    PlainBackdrop,
    Removal,
    Removed,
)
from tests.matte_kit import file_of, subject

BOUNDS = Bounds(max_px=1_000_000)
PNG = Encoding(Format.PNG)
RED = PlainBackdrop((255, 0, 0))


def pixels(encoded: Encoded | None) -> np.ndarray[Any, Any]:
    assert encoded is not None
    return np.asarray(Image.open(BytesIO(encoded.data)))


def ran(removal: Removal, alpha: np.ndarray[Any, Any]) -> Removed:
    """As the pipeline does, with `alpha` for the network's answer."""
    source = picturing.opened(removal, BOUNDS)
    own = source.picture.alpha
    if picturing.wants_matte(removal, source):
        own = picturing.with_own_alpha(alpha, source.picture)
    assert own is not None
    colors = picturing.solved(source.flat, own) if picturing.wants_colors(removal, source) else None
    return picturing.answered(removal, source, own, colors)


def test_a_rim_of_the_former_background_is_solved_away_unless_it_is_kept() -> None:
    alpha = np.full((8, 8), 255, np.uint8)
    alpha[:, 5:] = 0
    alpha[:, 3:5] = 128
    truth = np.full((8, 8, 3), (200, 20, 20), np.float64)
    share = alpha[..., None] / 255
    seen = np.rint(share * truth + (1 - share) * (20, 20, 200)).astype(np.uint8)
    solved = pixels(ran(Removal(file_of(seen), PNG), alpha).image)
    kept = pixels(ran(Removal(file_of(seen), PNG, edge_color=EdgeColor.KEPT), alpha).image)
    assert np.abs(solved[:, 3:5, :3] - truth[:, 3:5]).max() < 12
    assert np.array_equal(kept[:, 3:5, :3], seen[:, 3:5])
    for cutout in (solved, kept):
        assert not cutout[:, 5:].any()  # black where nothing is left
    back = ran(Removal(file_of(seen), PNG, return_background=True), alpha)
    assert np.abs(pixels(back.background)[:, 3:].astype(int) - (20, 20, 200)).max() < 12


def test_backdrops_are_a_colour_a_picture_or_the_former_background() -> None:
    seen, alpha = subject(12, 8), np.zeros((8, 12), np.uint8)
    alpha[2:6, 4:8] = 255
    on_red = pixels(ran(Removal(file_of(seen), PNG, RED), alpha).image)
    assert on_red.shape == (8, 12, 3)
    assert on_red[0, 0].tolist() == [255, 0, 0]
    assert np.array_equal(on_red[3, 5], seen[3, 5])
    green = np.zeros((40, 20, 3), np.uint8)
    green[:20] = (0, 255, 0)  # of a tall one, the middle is kept
    on_green = pixels(
        ran(Removal(file_of(seen), PNG, PictureBackdrop(file_of(green))), alpha).image
    )
    assert (on_green[0, 0].tolist(), on_green[7, 0].tolist()) == ([0, 255, 0], [0, 0, 0])
    same = pixels(ran(Removal(file_of(seen), PNG, EstimatedBackdrop()), alpha).image)
    assert np.abs(same[alpha == 0].astype(int) - seen[alpha == 0]).mean() < 3


def test_a_picture_with_alpha_stays_transparent_where_it_was() -> None:
    rgba = np.dstack([subject(10, 6), np.full((6, 10), 255, np.uint8)])
    rgba[:, :3, 3] = 0
    rgba[:, 3, 3] = 100
    alpha = np.full((6, 10), 200, np.uint8)
    matted = pixels(ran(Removal(file_of(rgba), PNG), alpha).image)
    assert matted[0, [0, 3, 9], 3].tolist() == [0, 78, 200]
    kept = pixels(ran(Removal(file_of(rgba), PNG, keep_alpha=True), alpha).image)
    assert np.array_equal(kept[..., 3], rgba[..., 3])
    assert np.array_equal(kept[:, 3:, :3], rgba[:, 3:, :3])
    rgba[..., 3] = 255  # says nothing, so there is nothing to keep
    opaque = pixels(ran(Removal(file_of(rgba), PNG, keep_alpha=True), alpha).image)
    assert set(opaque[..., 3].ravel().tolist()) == {200}


def test_the_network_sees_a_picture_with_alpha_on_white() -> None:
    rgba = np.zeros((2, 2, 4), np.uint8)
    source = picturing.opened(Removal(file_of(rgba)), BOUNDS)
    assert set(source.flat.ravel().tolist()) == {255}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, True),
        ({"edge_color": EdgeColor.KEPT}, False),
        ({"edge_color": EdgeColor.KEPT, "return_background": True}, True),
        ({"edge_color": EdgeColor.KEPT, "backdrop": EstimatedBackdrop()}, True),
        ({"edge_color": EdgeColor.KEPT, "backdrop": RED}, False),
        ({"matte_only": True}, False),
    ],
)
def test_colours_are_solved_for_where_somebody_wants_them(
    fields: dict[str, Any], wanted: bool
) -> None:
    removal = Removal(file_of(subject()), **fields)
    assert picturing.wants_colors(removal, picturing.opened(removal, BOUNDS)) is wanted


def test_what_an_answer_may_weigh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picturing, "MOST_ANSWER_BYTES", 12_000)
    noise = np.random.default_rng(1).integers(0, 255, (50, 50, 3), np.uint8)
    alpha = np.full((50, 50), 255, np.uint8)
    removal = Removal(file_of(noise), Encoding(Format.PNM))
    assert ran(removal, alpha).image is not None
    with pytest.raises(Fault) as caught:
        ran(Removal(file_of(noise), Encoding(Format.PNM), return_background=True), alpha)
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE
    assert "`background`" in caught.value.message


def test_estimations_and_compositions() -> None:
    rgb, matte = subject(9, 7), np.full((7, 9), 128, np.uint8)
    asked = Estimation(file_of(rgb), file_of(matte), PNG, cutout=True)
    picture, alpha = picturing.opened_with_matte(asked, BOUNDS)
    told = picturing.estimated(asked, alpha, picturing.solved(picture.rgb, alpha))
    assert pixels(told.foreground).shape == (7, 9, 4)
    assert pixels(told.background).shape == (7, 9, 3)
    bare = Estimation(file_of(rgb), file_of(matte), PNG, omit_background=True)
    told = picturing.estimated(bare, alpha, picturing.solved(picture.rgb, alpha))
    assert told.background is None
    assert pixels(told.foreground).shape == (7, 9, 3)
    composition = Composition(file_of(rgb), RED, PNG, file_of(matte))
    done = picturing.composed(composition, picturing.opened_for_composition(composition, BOUNDS))
    wanted = np.rint(rgb * (128 / 255) + np.array([255, 0, 0]) * (127 / 255))
    assert np.abs(pixels(done.image) - wanted).max() <= 1
    assert (done.width_px, done.height_px) == (9, 7)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Composition(file_of(subject()), RED, PNG), Reason.INVALID_REQUEST),
        (
            Composition(file_of(subject()), RED, PNG, file_of(np.zeros((3, 3), np.uint8))),
            Reason.SIZE_MISMATCH,
        ),
        (Composition(b"nothing", RED, PNG), Reason.INVALID_IMAGE),
    ],
)
def test_compositions_that_make_no_sense(asked: Composition, reason: Reason) -> None:
    with pytest.raises(Fault) as caught:
        picturing.opened_for_composition(asked, BOUNDS)
    assert caught.value.reason is reason


@given(
    width_px=st.integers(1, 20),
    height_px=st.integers(1, 20),
    seed=st.integers(0, 9),
    edge=st.sampled_from(EdgeColor),
)
def test_whatever_the_matte_the_cutout_carries_it(
    width_px: int, height_px: int, seed: int, edge: EdgeColor
) -> None:
    chance = np.random.default_rng(seed)
    alpha = chance.choice(np.array([0, 1, 128, 255], np.uint8), (height_px, width_px))
    seen = chance.integers(0, 256, (height_px, width_px, 3), np.uint8)
    removed = ran(Removal(file_of(seen), PNG, return_matte=True, edge_color=edge), alpha)
    cutout = pixels(removed.image)
    assert np.array_equal(cutout[..., 3], alpha)
    assert np.array_equal(pixels(removed.matte), alpha)
    assert not cutout[alpha == 0].any()
    assert removed.coverage == pytest.approx(alpha.mean() / 255)


def test_what_no_webp_could_hold_is_refused_before_it_is_matted() -> None:
    wide = file_of(np.zeros((1, 16_384, 3), np.uint8))
    with pytest.raises(Fault, match="WEBP holds at most 16383 pixels on a side") as caught:
        picturing.opened(Removal(wide, Encoding(Format.WEBP)), BOUNDS)
    assert caught.value.reason is Reason.INVALID_REQUEST
    assert picturing.opened(Removal(wide, PNG), BOUNDS).picture.width_px == 16_384
