"""What a picture would come to: its size, and the memory that it has to be admitted with. Pure."""

from dataclasses import dataclass

from chassis.errors import Fault, Reason
from services.diffusion.core import peak
from services.diffusion.core.sizes import Settled
from services.diffusion.engine import EngineSpec, TilingName
from services.diffusion.limits import MOST_INPUTS, size_of, wrong


@dataclass(frozen=True, slots=True)
class Wish:
    """A picture that might be made; 0 and None leave open."""

    width_px: int = 0
    height_px: int = 0
    batch: int = 1
    tiling: TilingName | None = None
    input_images: int = 0
    init_px: tuple[int, int] | None = None
    """(width, height) of the picture to start from."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What it comes to."""

    size: Settled
    preferred_mib: int
    minimum_mib: int


def plan(spec: EngineSpec, wish: Wish, lendable_mib: int) -> Planned:
    """With `lendable_mib` at most beside the model itself; 0: not known.

    Raises Fault INVALID_REQUEST, IMAGE_TOO_LARGE.
    """
    if wish.batch > spec.max_batch:
        raise wrong("batch", f"is at most {spec.max_batch} for this model; send several requests")
    if wish.input_images > MOST_INPUTS:
        raise wrong("input_images", f"are at most {MOST_INPUTS}; send fewer pictures")
    settled = size_of(spec, wish.width_px, wish.height_px, wish.init_px)
    size = peak.Size(settled.width_px * settled.height_px, wish.input_images)
    tiling = wish.tiling or spec.tiling.default
    untiled_mib = peak.untiled_mib(spec.peak, size)
    tiled_mib = peak.tiled_mib(spec.peak, size, spec.tiling.tile_px)
    preferred_mib = tiled_mib if tiling == "on" else untiled_mib
    minimum_mib = untiled_mib if tiling == "off" else tiled_mib
    if 0 < lendable_mib < minimum_mib:
        raise _too_large(spec, size, tiling, minimum_mib, lendable_mib)
    return Planned(settled, preferred_mib, minimum_mib)


def _too_large(
    spec: EngineSpec, size: peak.Size, tiling: TilingName, needed_mib: int, lendable_mib: int
) -> Fault:
    tile_px = None if tiling == "off" else spec.tiling.tile_px
    most_px = peak.most_px(spec.peak, lendable_mib, size.input_images, tile_px)
    hint = " or fewer input images" if size.input_images else ""
    advice = f"ask for at most {most_px} pixels{hint}"
    if most_px < spec.sizes.min_side_px**2:
        advice = f"use a smaller model{hint}"
    return Fault(
        Reason.IMAGE_TOO_LARGE,
        f"A picture of {size.px} pixels takes {needed_mib} MiB beside its model, and the device "
        f"lends at most {lendable_mib} MiB; {advice}.",
        metadata={"param": "width_px", "max_px": str(most_px)},
    )
