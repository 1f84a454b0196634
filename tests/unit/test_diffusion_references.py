"""References are given to the native library in shapes that it survives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.diffusion.core.sizes import Settled
from services.diffusion.inputs import read
from services.diffusion.painter import Inputs
from services.diffusion.values import Asked
from tests.matte_kit import file_of

SIDES = st.integers(1, 300)


def looked_at(width_px: int, height_px: int, made: tuple[int, int]) -> tuple[int, int]:
    """The shape of a reference, for a picture of the size that is made."""
    data = file_of(np.zeros((height_px, width_px, 3), np.uint8))
    asked = Asked(prompt="", reference_images=(data,))
    inputs: Inputs = read(asked, Settled(*made, rounded=False))
    height, width = inputs.references[0].shape[:2]
    return width, height


def cells(width_px: int, height_px: int, made_px: int, side_px: int) -> tuple[float, float]:
    """As the library counts them: by whole pixels' division, then half and more is one."""
    width = math.sqrt(made_px * width_px // height_px)
    height = width * height_px / width_px
    return math.floor(width / side_px + 0.5), math.floor(height / side_px + 0.5)


@given(SIDES, SIDES, st.integers(1, 40), st.integers(1, 40))
def test_no_side_is_without_a_cell(width: int, height: int, wide: int, high: int) -> None:
    made = wide * 16, high * 16
    shape = looked_at(width, height, made)
    for side_px in (16, 32):
        assert min(cells(*shape, made[0] * made[1], side_px)) >= 1, shape


@given(SIDES, SIDES, st.integers(4, 40))
def test_it_is_no_larger_than_the_picture(width: int, height: int, side: int) -> None:
    made_px = (side * 16) ** 2
    shape = looked_at(width, height, (side * 16, side * 16))
    assert shape[0] * shape[1] <= made_px + max(shape)  # a side is rounded


@pytest.mark.parametrize("shape", [(200, 150), (64, 256), (1, 1)])
def test_a_usual_one_stays_as_it_is(shape: tuple[int, int]) -> None:
    assert looked_at(*shape, (512, 512)) == shape


def test_a_large_one_keeps_its_shape() -> None:
    assert looked_at(300, 200, (96, 96)) == (117, 78)
