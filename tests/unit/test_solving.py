"""The solver against a slow one written as the equations are, an exact one, and its laws."""

import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from chassis.errors import Fault, Reason
from services.matte.solving import Solved, cpu, estimate, estimate_f32, peak_bytes, warm_up
from services.matte.solving.kernels import solve_band
from services.matte.solving.schedule import Level, Schedule, sample_step

_SIDES = ((0, -1), (0, 1), (-1, 0), (1, 0))
_FLOATS_AGREE = 2e-4

Array = NDArray[Any]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    warm_up()


def picture(height: int, width: int, seed: int) -> tuple[Array, Array]:
    """Colours and a matte with whole stretches of nothing and of all, as mattes have."""
    chance = np.random.default_rng(seed)
    image = chance.integers(0, 256, (height, width, 3), dtype=np.uint8)
    alpha = np.clip(chance.normal(0.5, 0.7, (height, width)), 0, 1)
    return image, np.rint(alpha * 255).astype(np.uint8)


def slow(image: Array, alpha: Array, schedule: Schedule) -> tuple[Array, Array]:
    """The multi-level method in plain loops, in float64."""
    image, alpha = image / 255, alpha / 255
    step = sample_step(*alpha.shape)
    sample, matte = image[::step, ::step], alpha[::step, ::step]
    means = [
        sample[sure].mean(axis=0) if sure.any() else np.zeros(3)
        for sure in (matte > 0.9, matte < 0.1)
    ]
    x = np.array(means).reshape(1, 1, 2, 3)
    for level in schedule.levels(*alpha.shape):
        x = x if x.shape[:2] == (level.height, level.width) else doubled(x, level)
        a = alpha[:: level.step, :: level.step]
        for half in range(2 * level.sweeps):
            relax(x, image[:: level.step, :: level.step], a, half % 2, schedule)
    x = with_known(x, image, alpha)
    return x[:, :, 0], x[:, :, 1]


def with_known(x: Array, image: Array, alpha: Array) -> Array:
    x = x.copy()
    x[alpha == 1, 0] = image[alpha == 1]
    x[alpha == 0, 1] = image[alpha == 0]
    return x


def doubled(x: Array, level: Level) -> Array:
    fine = np.empty((level.height, level.width, 2, 3))
    for v in range(level.height):
        for u in range(level.width):
            down, right = min((v + 1) // 2, len(x) - 1), min((u + 1) // 2, x.shape[1] - 1)
            corners = x[v // 2, u // 2], x[v // 2, right], x[down, u // 2], x[down, right]
            fine[v, u] = np.mean(corners, axis=0)
    return fine


def relax(x: Array, image: Array, alpha: Array, colour: int, schedule: Schedule) -> None:
    height, width = alpha.shape
    for v in range(height):
        for u in range((v + colour) % 2, width, 2):
            a = alpha[v, u]
            share, total, mean = np.array([a, 1 - a]), 0.0, np.zeros((2, 3))
            for down, right in _SIDES:
                near = min(max(v + down, 0), height - 1), min(max(u + right, 0), width - 1)
                distance = schedule.epsilon + abs(a - alpha[near])
                total, mean = total + distance, mean + distance * x[near]
            mean = x[v, u] + schedule.relaxation * (mean / total - x[v, u])
            gain = share / (total / schedule.relaxation + share @ share)
            rest = image[v, u] - share @ mean
            x[v, u] = np.clip(mean + gain[:, None] * rest, 0, 1)


@given(st.integers(1, 5000), st.integers(1, 5000))
def test_levels_go_from_a_single_pixel_to_the_picture(height: int, width: int) -> None:
    levels = list(Schedule().levels(height, width))
    assert (levels[0].height, levels[0].width) == (1, 1)
    assert levels[-1] == Level(1, height, width, Schedule().finest_sweeps[0])
    for level in levels:
        assert level.height == len(range(0, height, level.step))
        assert level.width == len(range(0, width, level.step))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 23), st.integers(1, 23), st.integers(0, 1000))
def test_it_is_what_the_equations_say(height: int, width: int, seed: int) -> None:
    image, alpha = picture(height, width, seed)
    schedule = Schedule(finest_sweeps=(2, 3), sweeps=4)
    expected = slow(image, alpha, schedule)
    for found, true in zip(estimate_f32(image, alpha, schedule), expected, strict=True):
        assert np.abs(found - true).max() < _FLOATS_AGREE


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (9, 1), (5, 7), (12, 12)])
def test_enough_sweeps_find_the_minimum_of_the_energy(height: int, width: int) -> None:
    """The normal equations solved exactly; colours in the middle, so that none is cut off."""
    chance = np.random.default_rng(7)
    alpha = chance.uniform(0.2, 0.8, (height, width)).astype(np.float32)
    image = chance.uniform(0.45, 0.55, (height, width, 3)).astype(np.float32)
    many = Schedule(epsilon=1e-2, relaxation=1.5, finest_sweeps=(400,), sweeps=4)
    found = np.stack(estimate_f32(image, alpha, many), axis=2)
    exact = minimum(image.astype(float), alpha.astype(float), many.epsilon)
    if height * width == 1:  # two unknowns, one number, no neighbour: only the data can be met
        residual = alpha * found[..., 0, :] + (1 - alpha) * found[..., 1, :] - image
        assert np.abs(residual).max() < 1e-5
        return
    assert exact.min() > 0
    assert exact.max() < 1
    assert np.abs(found - exact).max() < _FLOATS_AGREE


def minimum(image: Array, alpha: Array, epsilon: float) -> Array:
    """argmin of E of `schedule`, (H, W, 2, 3)."""
    height, width = alpha.shape
    unknown = np.arange(2 * height * width).reshape(height, width, 2)
    system = np.zeros((unknown.size, unknown.size))
    right = np.zeros((unknown.size, 3))
    for v in range(height):
        for u in range(width):
            share = np.array([alpha[v, u], 1 - alpha[v, u]])
            own = unknown[v, u]
            system[np.ix_(own, own)] += np.outer(share, share)
            right[own] += share[:, None] * image[v, u]
            for down, across in ((0, 1), (1, 0)):
                if v + down < height and u + across < width:
                    near = unknown[v + down, u + across]
                    distance = epsilon + abs(alpha[v, u] - alpha[v + down, u + across])
                    for a, b in zip(own, near, strict=True):
                        system[[a, b], [a, b]] += distance
                        system[[a, b], [b, a]] -= distance
    return np.linalg.lstsq(system, right, rcond=None)[0].reshape(height, width, 2, 3)


@pytest.mark.parametrize(("height", "width"), [(300, 1100), (263, 521), (700, 37)])
def test_how_it_is_cut_does_not_show(
    height: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, alpha = picture(height, width, 3)
    monkeypatch.setattr(cpu, "_WORTH_THREADS_PIXELS", 10**9)
    whole = estimate(image, alpha)
    monkeypatch.setattr(cpu, "_WORTH_THREADS_PIXELS", 1)
    for rows in (1, 7, 64):
        monkeypatch.setattr(cpu, "_BAND_ROWS", rows)
        for mine, its in zip(estimate(image, alpha), whole, strict=True):
            assert np.array_equal(mine, its)


def test_wide_pictures_agree_with_the_slow_solver() -> None:
    """Wider than a strip, so that cuts between columns are seen, too."""
    image, alpha = picture(3, 1030, 5)
    schedule = Schedule(finest_sweeps=(2,), sweeps=2)
    expected = slow(image, alpha, schedule)
    for found, true in zip(estimate_f32(image, alpha, schedule), expected, strict=True):
        assert np.abs(found - true).max() < _FLOATS_AGREE


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 1000))
def test_bytes_are_the_rounded_floats(height: int, width: int, seed: int) -> None:
    image, alpha = picture(height, width, seed)
    for found, true in zip(estimate(image, alpha), estimate_f32(image, alpha), strict=True):
        assert np.array_equal(found, (true * np.float32(255) + np.float32(0.5)).astype(np.uint8))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(0, 1000))
def test_what_is_known_is_kept(height: int, width: int, seed: int) -> None:
    """Where alpha is 1 the foreground is the picture to the byte, where it is 0 the background."""
    image, alpha = picture(height, width, seed)
    found = estimate(image, alpha)
    for colours, known in zip(found, (alpha == 255, alpha == 0), strict=True):
        assert np.array_equal(colours[known], image[known])


@pytest.mark.parametrize("value", [0, 255])
def test_a_matte_that_is_the_same_everywhere(value: int) -> None:
    image, _ = picture(33, 47, 1)
    found = estimate(image, np.full((33, 47), value, np.uint8))
    sure, other = found if value else reversed(found)
    assert np.array_equal(sure, image)
    assert not other.any()  # nothing is known of it: black


def test_floats_and_bytes_are_the_same_picture() -> None:
    image, alpha = picture(31, 44, 2)
    as_floats = image.astype(np.float32) / 255, alpha.astype(np.float32) / 255
    for colours in (image, as_floats[0]):
        for matte in (alpha, as_floats[1]):
            for mine, its in zip(estimate(colours, matte), estimate(image, alpha), strict=True):
                assert np.abs(mine.astype(int) - its).max() <= 1


def test_what_lies_outside_of_0_and_1_is_taken_as_the_end() -> None:
    image, alpha = (each.astype(np.float32) / 255 for each in picture(9, 9, 4))
    wild = estimate(image * 3 - 1, alpha * 3 - 1)
    tame = estimate(np.clip(image * 3 - 1, 0, 1), np.clip(alpha * 3 - 1, 0, 1))
    assert np.array_equal(wild.foreground, tame.foreground)
    assert np.array_equal(wild.background, tame.background)


def test_views_and_read_only_arrays_are_taken() -> None:
    image, alpha = picture(40, 40, 6)
    views = image[::2, ::-1], alpha[::2, ::-1]
    plain = tuple(np.ascontiguousarray(view) for view in views)
    for each in plain:
        each.flags.writeable = False
    assert np.array_equal(estimate(*views).foreground, estimate(*plain).foreground)


def test_nothing_is_compiled_anew_whatever_comes() -> None:
    image, alpha = picture(12, 14, 9)
    floats = image.astype(np.float32) / 255, alpha.astype(np.float32) / 255
    image.flags.writeable = False
    for colours in (image, image[:, ::-1], floats[0], np.asfortranarray(floats[0])):
        for matte in (alpha, floats[1].T.copy().T):
            estimate(colours, matte)
    assert len(solve_band.signatures) == 1


def test_many_at_once_are_each_what_they_are_alone() -> None:
    pictures = [picture(160 + 3 * n, 200, n) for n in range(6)]
    alone = [estimate(*each) for each in pictures]
    together: list[Solved | None] = [None] * len(pictures)

    def solve(n: int) -> None:
        together[n] = estimate(*pictures[n])

    threads = [threading.Thread(target=solve, args=(n,)) for n in range(len(pictures))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for mine, its in zip(together, alone, strict=True):
        assert mine is not None
        assert np.array_equal(mine.foreground, its.foreground)
        assert np.array_equal(mine.background, its.background)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (700, 900), (16, 3000), (1024, 1024)])
def test_memory_stays_below_what_is_said(height: int, width: int) -> None:
    """The arrays of numpy; the rings are numba's and added by hand."""
    image, alpha = picture(height, width, 8)
    tracemalloc.start()
    try:
        estimate(image, alpha)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= peak_bytes(width, height)
    assert peak_bytes(width, height) <= 1.3 * peak + (8 << 20)


@pytest.mark.parametrize(
    ("image", "alpha", "reason", "param"),
    [
        (np.zeros((4, 4), np.uint8), np.zeros((4, 4), np.uint8), Reason.INVALID_IMAGE, "image"),
        (np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4), np.uint8), Reason.INVALID_IMAGE, "image"),
        (np.zeros((0, 4, 3), np.uint8), np.zeros((0, 4), np.uint8), Reason.INVALID_IMAGE, "image"),
        (np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5), np.uint8), Reason.SIZE_MISMATCH, "alpha"),
        (np.zeros((4, 4, 3)), np.zeros((4, 4), np.uint8), Reason.INVALID_IMAGE, "image"),
        (np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), bool), Reason.INVALID_IMAGE, "alpha"),
        (
            np.zeros((1, 2, 3), np.uint8),
            np.array([[0.5, np.nan]], np.float32),
            Reason.INVALID_IMAGE,
            "alpha",
        ),
        (
            np.full((1, 1, 3), np.inf, np.float32),
            np.zeros((1, 1), np.uint8),
            Reason.INVALID_IMAGE,
            "image",
        ),
    ],
)
def test_what_cannot_be_solved_is_refused(
    image: Array, alpha: Array, reason: Reason, param: str
) -> None:
    with pytest.raises(Fault) as caught:
        estimate(image, alpha)
    assert caught.value.reason is reason
    assert caught.value.metadata == {"param": param}
