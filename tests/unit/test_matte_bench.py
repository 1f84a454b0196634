"""The bench's own measures: an estimate that is the truth is free of error, and truth is truth."""

import dataclasses

import numpy as np
import pytest

pytest.importorskip("skimage")

from bench.matte.figures import FEWEST, Compared, Errors, Shot, errors
from bench.matte.pictures import COMPOSITES, KINDS, composite, with_coarse_matte


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_a_composite_is_made_of_what_it_says(number: int) -> None:
    made = composite(number, 96)
    alpha = made.alpha[..., None] / 255
    whole = alpha * made.foreground + (1 - alpha) * made.background
    assert made.kind == KINDS[number]
    assert np.abs(whole - made.image).max() <= 0.51
    assert ((made.alpha > 0) & (made.alpha < 255)).mean() > 0.02


def test_a_coarse_matte_changes_the_matte_alone() -> None:
    exact = composite(0, 400)
    coarse = with_coarse_matte(exact)
    assert (coarse.alpha != exact.alpha).any()
    assert dataclasses.replace(coarse, alpha=exact.alpha) == exact


def test_the_truth_has_no_error_and_less_alpha_counts_less() -> None:
    made = composite(1, 64)
    truth = made.foreground.astype(np.float32) / np.float32(255)
    behind = made.background.astype(np.float32) / np.float32(255)
    assert errors(truth, behind, made) == Errors(0, 0, 0, 0)
    for alpha, expected in ((128, 0.5 * 128 / 383), (0, 0.0)):
        one_side = dataclasses.replace(made, alpha=np.array(made.alpha))
        one_side.alpha[:32] = 255
        one_side.alpha[32:] = alpha
        off = truth.copy()
        off[32:] += np.float32(0.5)
        assert errors(off, behind, one_side).mean == pytest.approx(expected, abs=1e-6)


def shots(error: float, wall_s: float, count: int = FEWEST) -> list[Shot]:
    return [
        Shot(KINDS[n % len(KINDS)], Errors(error, error, error, error), wall_s, wall_s)
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("error", "wall_s", "count", "passes"),
    [
        (1.0, 2.0, FEWEST, True),
        (1.01, 2.0, FEWEST, False),
        (1.0, 2.1, FEWEST, False),
        (1.0, 2.0, FEWEST - 1, False),
    ],
)
def test_limits_are_kept_or_not(error: float, wall_s: float, count: int, passes: bool) -> None:
    ours, theirs = shots(error, wall_s, count), shots(1.0, 3.0, count)
    found = Compared(512, ours, theirs, ours, theirs)
    assert found.passes is passes
    assert found.error_ratios.mean == pytest.approx(error)
    assert set(found.error_ratio_by_kind) == set(KINDS)
    assert found.speed_ratio == pytest.approx(3.0 / wall_s)


def test_there_are_enough_composites() -> None:
    assert COMPOSITES >= FEWEST
