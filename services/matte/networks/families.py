"""What each family of networks is fed and what its answer means. Pure numbers.

The figures are those the networks were trained with: U²-Net (Qin et al. 2020) divides by the
brightest value of the picture, IS-Net (Qin et al. 2022) by 255 and centres at 0.5, BiRefNet (Zheng
et al. 2024) takes ImageNet's mean and deviation, and answers before its sigmoid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from services.matte.engine import NetworkName

Triple = tuple[float, float, float]

_IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
_IMAGENET_DEVIATION: Triple = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class Family:
    """How pictures go in, and how mattes come out."""

    name: str
    side_px: int
    """Pictures are scaled to a square of it, unless the network's own input says otherwise."""
    mean: Triple
    deviation: Triple
    divisor: Literal["brightest", "255"]
    answer: Literal["stretched", "logits"]
    """stretched: from its least to its greatest value; logits: before the sigmoid."""
    output: Literal["first", "last"]
    """Which of several outputs is the finest."""
    peak_mib: int
    """Measured or, for BiRefNet, computed: what one call adds to a loaded network on the host."""


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            Family(
                "u2net",
                320,
                _IMAGENET_MEAN,
                _IMAGENET_DEVIATION,
                "brightest",
                "stretched",
                "first",
                340,
            ),
            Family(
                "isnet", 1024, (0.5, 0.5, 0.5), (1.0, 1.0, 1.0), "255", "stretched", "first", 2048
            ),
            Family(
                "birefnet",
                1024,
                _IMAGENET_MEAN,
                _IMAGENET_DEVIATION,
                "255",
                "logits",
                "last",
                6144,
            ),
        )
    }
)


def family_of(wanted: NetworkName, file_name: str, side_px: int | None, inputs: str) -> str | None:
    """The name of the family: as it is written, else by the file's name, else by what the input of
    the network looks like. None: it cannot be told.
    """
    if wanted != "auto":
        return wanted
    name = file_name.lower().replace("-", "").replace("_", "")
    for family in ("birefnet", "isnet", "u2net"):
        if family in name:
            return family
    if side_px == FAMILIES["u2net"].side_px:
        return "u2net"
    if side_px == FAMILIES["birefnet"].side_px:
        return "birefnet" if inputs == "input_image" else "isnet"
    return None
