"""The solver for tensors says what the one for arrays says; here on the CPU's tensors."""

from typing import Any

import numpy as np
import pytest

from chassis.errors import Fault, Reason
from services.matte.solving import estimate_f32, warm_up

torch = pytest.importorskip("torch")

from services.matte.solving.device import (  # noqa: E402 - needs torch
    device_peak_bytes,
    estimate_on_device,
)

_FLOATS_AGREE = 1e-4


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    warm_up()


def batch(pictures: int, height: int, width: int, seed: int = 0) -> tuple[Any, Any]:
    chance = np.random.default_rng(seed)
    image = chance.random((pictures, 3, height, width), np.float32)
    alpha = np.clip(chance.normal(0.5, 0.7, (pictures, 1, height, width)), 0, 1)
    return torch.from_numpy(image), torch.from_numpy(alpha.astype(np.float32))


@pytest.mark.parametrize(
    ("height", "width"), [(1, 1), (1, 13), (17, 1), (2, 3), (37, 53), (64, 64), (130, 259)]
)
def test_both_solvers_agree_on_every_picture_of_a_batch(height: int, width: int) -> None:
    image, alpha = batch(3, height, width)
    found = [each.permute(0, 2, 3, 1).numpy() for each in estimate_on_device(image, alpha)]
    for n in range(3):
        expected = estimate_f32(image[n].permute(1, 2, 0).numpy(), alpha[n, 0].numpy())
        for mine, its in zip(found, expected, strict=True):
            assert np.abs(mine[n] - its).max() < _FLOATS_AGREE


def test_halves_come_back_as_floats() -> None:
    image, alpha = batch(1, 20, 30)
    halves = estimate_on_device(image.half(), alpha.half())
    floats = estimate_on_device(image.half().float(), alpha.half().float())
    for mine, its in zip(halves, floats, strict=True):
        assert mine.dtype == torch.float32
        assert mine.shape == (1, 3, 20, 30)
        assert torch.equal(mine, its)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_matte_that_is_the_same_everywhere(value: float) -> None:
    image, alpha = batch(2, 19, 8)
    found = estimate_on_device(image, torch.full_like(alpha, value))
    sure, other = found if value else reversed(found)
    assert (sure - image).abs().max() < 1e-3
    assert not other.any()


def test_what_is_not_a_number_is_nothing() -> None:
    image, alpha = batch(1, 6, 6)
    alpha[0, 0, 2, 2] = float("nan")
    zeroed = torch.nan_to_num(alpha, 0.0)
    for mine, its in zip(
        estimate_on_device(image, alpha), estimate_on_device(image, zeroed), strict=True
    ):
        assert torch.equal(mine, its)


@pytest.mark.parametrize(
    ("image", "alpha", "reason"),
    [
        ((1, 4, 5, 5), (1, 1, 5, 5), Reason.INVALID_IMAGE),
        ((3, 5, 5), (1, 5, 5), Reason.INVALID_IMAGE),
        ((1, 3, 0, 5), (1, 1, 0, 5), Reason.INVALID_IMAGE),
        ((2, 3, 5, 5), (1, 1, 5, 5), Reason.SIZE_MISMATCH),
        ((1, 3, 5, 5), (1, 1, 5, 6), Reason.SIZE_MISMATCH),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    image: tuple[int, ...], alpha: tuple[int, ...], reason: Reason
) -> None:
    with pytest.raises(Fault) as caught:
        estimate_on_device(torch.zeros(image), torch.zeros(alpha))
    assert caught.value.reason is reason


def test_memory_stays_below_what_is_said() -> None:
    image, alpha = batch(2, 300, 200)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiled:
        estimate_on_device(image, alpha)
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = np.cumsum([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())])
    assert held.max() <= device_peak_bytes(200, 300, 2)
    assert device_peak_bytes(200, 300, 2) <= 1.2 * held.max() + (1 << 20)
