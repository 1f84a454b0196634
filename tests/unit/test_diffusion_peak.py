"""What a picture adds at its peak: grows with its size, is less tiled, and can be turned round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from services.diffusion.core.peak import (
    MPX,
    Growth,
    PeakProfile,
    Size,
    most_px,
    tiled_mib,
    untiled_mib,
    with_weights,
)
from services.diffusion.engine import EngineSpec, Placement, Role, Tiling
from services.diffusion.families import peak_profile
from services.diffusion.planning import Wish, plan

_MIB = st.floats(0, 20_000)
GROWTHS = st.builds(Growth, _MIB, _MIB, _MIB)
PROFILES = st.builds(PeakProfile, _MIB, GROWTHS, GROWTHS)
SIZES = st.builds(Size, st.integers(1, 64 * MPX), st.integers(0, 9))
WHOLE: tuple[Role, ...] = ("model",)
SDXL = peak_profile("sdxl", WHOLE, Placement(threads=1), on_card=True)


@given(PROFILES, SIZES, st.integers(0, 4 * MPX), st.integers(64, 4096))
def test_more_pixels_never_take_less(
    profile: PeakProfile, size: Size, more: int, tile: int
) -> None:
    larger = Size(size.px + more, size.input_images)
    assert untiled_mib(profile, size) <= untiled_mib(profile, larger)
    assert tiled_mib(profile, size, tile) <= tiled_mib(profile, larger, tile)
    assert 1 <= tiled_mib(profile, size, tile) <= untiled_mib(profile, size)


@given(PROFILES, st.integers(0, 9), st.integers(1, 200_000), st.none() | st.integers(64, 4096))
def test_the_largest_picture_is_the_largest(
    profile: PeakProfile, inputs: int, lendable_mib: int, tile: int | None
) -> None:
    def peak_mib(px: int) -> int:
        size = Size(px, inputs)
        return untiled_mib(profile, size) if tile is None else tiled_mib(profile, size, tile)

    px = most_px(profile, lendable_mib, inputs, tile)
    assert px == 0 or peak_mib(px) <= lendable_mib
    assert px == 1 << 31 or peak_mib(px + 1) > lendable_mib


def test_the_published_figures() -> None:
    whole = Size(MPX)
    assert untiled_mib(SDXL, whole) == 6656 + 32
    assert tiled_mib(SDXL, whole, 256) == 64 + 500 + 32  # its steps take more than its tiles
    assert untiled_mib(SDXL, Size(MPX, 3)) == 6656 + 4 * 32


def test_offloaded_weights_come_for_their_phase() -> None:
    offloaded = with_weights(SDXL, 1000, 5000, 160)
    assert untiled_mib(offloaded, Size(MPX)) == 6656 + 160 + 32
    assert tiled_mib(offloaded, Size(MPX), 256) == 5000 + 64 + 500 + 32
    assert offloaded.condition_mib == SDXL.condition_mib + 1000


SPEC = EngineSpec("sdxl", {"model": "/m"}, peak=SDXL, max_batch=2)


@pytest.mark.parametrize(
    ("tiling", "preferred", "minimum"),
    [(None, 6688, 596), ("auto", 6688, 596), ("on", 596, 596), ("off", 6688, 6688)],
)
def test_what_a_request_is_admitted_with(tiling: str, preferred: int, minimum: int) -> None:
    planned = plan(SPEC, Wish(1024, 1000, tiling=tiling), 0)  # type: ignore[arg-type]
    assert (planned.size.height_px, planned.size.rounded) == (1024, True)
    assert (planned.preferred_mib, planned.minimum_mib) == (preferred, minimum)


def test_what_can_never_fit_is_told_how_much_could() -> None:
    assert plan(SPEC, Wish(1024, 1024), 596).minimum_mib == 596
    with pytest.raises(Fault) as caught:
        plan(SPEC, Wish(1024, 1024), 595)
    assert caught.value.reason is Reason.IMAGE_TOO_LARGE
    most = int(caught.value.metadata["max_px"])
    assert 0 < most < MPX
    assert tiled_mib(SDXL, Size(most), 256) <= 595
    with pytest.raises(Fault, match="use a smaller model"):
        plan(SPEC, Wish(1024, 1024), 60)
    with pytest.raises(Fault, match="at most 2 for this model"):
        plan(SPEC, Wish(batch=3), 0)
    with pytest.raises(Fault, match="`input_images` are at most 10"):
        plan(SPEC, Wish(input_images=11), 0)
    with pytest.raises(Fault) as whole:
        plan(SPEC, Wish(1024, 1024, tiling="off"), 6687)
    assert int(whole.value.metadata["max_px"]) < MPX


def test_memory_does_not_shrink() -> None:
    with pytest.raises(ValueError, match="does not shrink"):
        Growth(per_mpx_mib=-1)
    assert Tiling().tile_px == 256
