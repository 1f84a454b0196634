"""Which size a picture gets: what was asked for, rounded up to what the model accepts. Pure."""

from dataclasses import dataclass
from typing import Protocol


class SizeLimits(Protocol):
    """Which sizes a model accepts."""

    @property
    def multiple_px(self) -> int:
        """Both sides are multiples of this."""

    @property
    def min_side_px(self) -> int:
        """No side is shorter."""

    @property
    def max_side_px(self) -> int:
        """No side is longer."""

    @property
    def max_px(self) -> int:
        """No picture has more pixels."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The size that a picture gets."""

    width_px: int
    height_px: int
    rounded: bool
    """It is not the one that was asked for."""


class SizeTooLargeError(ValueError):
    """The model makes no picture of this size; the message is a sentence for people."""

    def __init__(self, message: str, param: str, max_px: int) -> None:
        super().__init__(message)
        self.param = param
        self.max_px = max_px


def settled(
    limits: SizeLimits,
    width_px: int,
    height_px: int,
    default_px: tuple[int, int],
    init_px: tuple[int, int] | None = None,
) -> Settled:
    """The size for a wish of `width_px` by `height_px`, where 0 leaves a side open.

    A side that is left open is that of the picture to start from (`init_px`), else of
    `default_px`, each (width, height). Raises SizeTooLargeError.
    """
    open_px = init_px or default_px
    wanted = width_px or open_px[0], height_px or open_px[1]
    width, height = (_side(limits, px) for px in wanted)
    for param, wish, px in (("width_px", wanted[0], width), ("height_px", wanted[1], height)):
        if px > limits.max_side_px:
            raise SizeTooLargeError(
                f"The picture would be {wish} pixels on one side, and this model makes at most "
                f"{limits.max_side_px}; ask for a smaller one with `width_px` and `height_px`.",
                param,
                limits.max_px,
            )
    if width * height > limits.max_px:
        raise SizeTooLargeError(
            f"The picture would have {width} x {height} pixels, and this model makes at most "
            f"{limits.max_px} in all; ask for a smaller one with `width_px` and `height_px`.",
            "width_px",
            limits.max_px,
        )
    return Settled(width, height, (width, height) != wanted)


def _side(limits: SizeLimits, wanted_px: int) -> int:
    """The shortest side that the model accepts and that is not shorter than wanted."""
    px = max(wanted_px, limits.min_side_px)
    return -(-px // limits.multiple_px) * limits.multiple_px
