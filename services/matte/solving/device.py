"""The solver for tensors where they are: nothing is copied back, nothing waits for the device.

The same levels, sweeps and equations as on the CPU (`schedule`), for a batch at once, in float32.
This room imports torch, so nothing imports this room but what has torch anyway.
"""

import torch
from torch import Tensor

from chassis.errors import Fault, Reason
from services.matte.solving.schedule import (
    SURELY_BACKGROUND,
    SURELY_FOREGROUND,
    Level,
    Schedule,
    sample_step,
)

_SIDES = ((0, -1), (0, 1), (-1, 0), (1, 0))
"""Rows and columns from a pixel to its neighbours."""
_SCHEDULE = Schedule()
_PEAK_BYTES_PER_PIXEL = 200
"""Both colours are 24; four of them live at once, with the coefficients and the picture in float32.
A test counts them."""


def estimate_on_device(
    image: Tensor, alpha: Tensor, schedule: Schedule = _SCHEDULE
) -> tuple[Tensor, Tensor]:
    """Foreground and background, (N, 3, H, W) float32 in [0, 1] on the device of `image`.

    `image` (N, 3, H, W) and `alpha` (N, 1, H, W) are floating point in [0, 1] on one device; what
    lies outside is taken as the nearer end, and what is not a number as 0: to refuse it would mean
    waiting for the device. Shapes that do not fit are refused (`INVALID_IMAGE`, `SIZE_MISMATCH`).
    """
    _check(image, alpha)
    with torch.inference_mode():
        picture, matte = (_plain(values) for values in (image, alpha))
        colours = _mean_colours(picture, matte)
        for level in schedule.levels(*matte.shape[2:]):
            step = level.step
            colours = _doubled(colours, level)
            colours = _swept(
                colours, picture[..., ::step, ::step], matte[..., ::step, ::step], level, schedule
            )
        foreground, background = _with_known(colours, picture, matte).unbind(1)
        return foreground, background


def device_peak_bytes(width: int, height: int, pictures: int = 1) -> int:
    """The most that `estimate_on_device` takes for itself, both answers included."""
    return _PEAK_BYTES_PER_PIXEL * width * height * pictures + (1 << 20)


def _check(image: Tensor, alpha: Tensor) -> None:
    if image.ndim != 4 or image.shape[1] != 3 or not image.numel():
        text = f"A batch of pictures is (N, 3, H, W), not {tuple(image.shape)}."
        raise Fault(Reason.INVALID_IMAGE, text, metadata={"param": "image"})
    wanted = (image.shape[0], 1, *image.shape[2:])
    if tuple(alpha.shape) != wanted:
        text = f"The mattes of these pictures are {wanted}, not {tuple(alpha.shape)}."
        raise Fault(Reason.SIZE_MISMATCH, text, metadata={"param": "alpha"})


def _plain(values: Tensor) -> Tensor:
    return values.float().nan_to_num(0.0, 1.0, 0.0).clamp(0, 1)


def _mean_colours(image: Tensor, alpha: Tensor) -> Tensor:
    """What is surely foreground and surely background, (N, 2, 3, 1, 1); black if there is none."""
    step = sample_step(*alpha.shape[2:])
    sample, matte = image[..., ::step, ::step], alpha[..., ::step, ::step]
    means = []
    for sure in (matte > SURELY_FOREGROUND, matte < SURELY_BACKGROUND):
        weight = sure.float()
        total = weight.sum((2, 3), keepdim=True).clamp(min=1)
        means.append((sample * weight).sum((2, 3), keepdim=True) / total)
    return torch.stack(means, 1)


def _doubled(colours: Tensor, level: Level) -> Tensor:
    """The coarser level's pixels and those halfway between them, cut to the finer level's size."""
    if colours.shape[-2:] == (level.height, level.width):
        return colours
    between = (colours + _beside(colours, 1, 0)) / 2
    tall = torch.stack((colours, between), -2).flatten(-3, -2)[..., : level.height, :]
    between = (tall + _beside(tall, 0, 1)) / 2
    return torch.stack((tall, between), -1).flatten(-2)[..., : level.width]


def _swept(
    colours: Tensor, image: Tensor, alpha: Tensor, level: Level, schedule: Schedule
) -> Tensor:
    """All sweeps of a level. Colours are (N, 2, 3, h, w): foreground, background."""
    distances = [schedule.epsilon + (alpha - _beside(alpha, *side)).abs() for side in _SIDES]
    total = torch.stack(distances).sum(0)
    weights = [(schedule.relaxation * each / total).unsqueeze(1) for each in distances]
    shares = torch.stack((alpha, 1 - alpha), 1)
    pull = shares / (total / schedule.relaxation).add(alpha**2).add((1 - alpha) ** 2).unsqueeze(1)
    rows = torch.arange(level.height, device=alpha.device).unsqueeze(1)
    odd = ((rows + torch.arange(level.width, device=alpha.device)) % 2).bool()
    for half in range(2 * level.sweeps):
        mean = (1 - schedule.relaxation) * colours
        for weight, side in zip(weights, _SIDES, strict=True):
            mean.addcmul_(weight, _beside(colours, *side))
        rest = image - alpha * mean[:, 0] - (1 - alpha) * mean[:, 1]
        mean.addcmul_(pull, rest.unsqueeze(1)).clamp_(0, 1)
        colours = torch.where(odd if half % 2 else ~odd, mean, colours)
    return colours


def _with_known(colours: Tensor, image: Tensor, alpha: Tensor) -> Tensor:
    """Pixels that are all foreground or all background have the picture's own colours."""
    known = torch.stack((alpha == 1, alpha == 0), 1)
    return torch.where(known, image.unsqueeze(1), colours)


def _beside(values: Tensor, down: int, right: int) -> Tensor:
    """For every pixel its neighbour there; at the picture's end the pixel itself."""
    axis, forward = (-2, down > 0) if down else (-1, right > 0)
    length = values.shape[axis]
    if length == 1:
        return values
    if forward:
        kept, last = values.narrow(axis, 1, length - 1), values.narrow(axis, length - 1, 1)
        return torch.cat((kept, last), axis)
    kept, first = values.narrow(axis, 0, length - 1), values.narrow(axis, 0, 1)
    return torch.cat((first, kept), axis)
