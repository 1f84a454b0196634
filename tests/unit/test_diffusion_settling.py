"""What applies to a request: defaults, the value for an exact 0, tiles by the lease."""

from dataclasses import replace

import pytest

from chassis.errors import Fault, Reason
from services.diffusion.core.peak import Growth, PeakProfile
from services.diffusion.core.sizes import Settled
from services.diffusion.engine import Defaults, EngineSpec, Output, Tiling, as_json, spec_of
from services.diffusion.limits import check, size_of
from services.diffusion.settling import settle
from services.diffusion.values import Asked, AskedOutput, Settings

SPEC = EngineSpec(
    family="z-image",
    files={"diffusion_model": "/a", "llm": "/b", "taesd": "/c"},
    defaults=Defaults(steps=9, guidance=5.0, distilled_guidance=3.0, sampler="heun"),
    zero_guidance=1.0,
    peak=PeakProfile(10.0, Growth(10.0, 100.0), Growth(10.0, 1000.0), Growth(0.0, 1000.0)),
)
MPX = Settled(1024, 1024, rounded=False)
LEASED = Asked(transient_lease_id="lease", transient_mib=5000)


def settings_of(asked: Asked = LEASED, spec: EngineSpec = SPEC, size: Settled = MPX) -> Settings:
    return settle(asked, spec, size, (), 77)


def test_what_is_left_open_is_the_models_default() -> None:
    settings = settings_of()
    assert (settings.steps, settings.guidance, settings.distilled_guidance) == (9, 5.0, 3.0)
    assert (settings.sampler, settings.scheduler) == ("heun", "discrete")
    assert (settings.seed, settings.seeded, settings.cached) == (77, False, False)
    assert (settings.output.format, settings.output.quality) == ("webp", 85)


@pytest.mark.parametrize(
    ("asked", "zero_guidance", "guidance"),
    [(0.0, 1.0, 1.0), (-0.0, 1.0, 1.0), (1e-6, 1.0, 1e-6), (0.0, None, 0.0), (None, 1.0, 5.0)],
)
def test_only_an_exact_zero_is_replaced(
    asked: float | None, zero_guidance: float | None, guidance: float
) -> None:
    spec = replace(SPEC, zero_guidance=zero_guidance)
    assert settings_of(replace(LEASED, guidance=asked), spec).guidance == guidance


def test_a_seed_may_be_cached_unless_the_caller_says_no() -> None:
    assert settings_of(replace(LEASED, seed=0)).cached
    assert not settings_of(replace(LEASED, seed=0, no_result_cache=True)).cached


@pytest.mark.parametrize(
    ("tiling", "leased_mib", "tiled"),
    [
        (None, 5000, False),
        ("auto", 5000, False),
        (None, 500, True),
        ("on", 5000, True),
        ("off", 5000, False),
        ("off", 500, None),
        ("on", 50, None),
        (None, 50, None),
    ],
)
def test_tiles_are_taken_where_the_lease_covers_no_more(
    tiling: str | None, leased_mib: int, tiled: bool | None
) -> None:
    asked = replace(LEASED, tiling=tiling, transient_mib=leased_mib)  # type: ignore[arg-type]
    if tiled is None:
        with pytest.raises(Fault) as caught:
            settings_of(asked)
        assert caught.value.reason is Reason.LEASE_REQUIRED
        assert int(caught.value.metadata["needed_mib"]) > leased_mib
    else:
        assert settings_of(asked).tiled == tiled


def test_memory_without_a_lease_counts_for_nothing() -> None:
    with pytest.raises(Fault, match="covers 0 MiB"):
        settings_of(replace(LEASED, transient_lease_id=""))


def test_more_pictures_to_look_at_need_a_larger_lease() -> None:
    asked = replace(LEASED, transient_mib=1100)
    assert not settings_of(asked).tiled
    more = replace(asked, reference_images=(b"x",) * 8)
    with pytest.raises(Fault) as caught:
        settings_of(replace(more, tiling="off"))
    assert caught.value.reason is Reason.LEASE_REQUIRED


@pytest.mark.parametrize(
    ("spec", "leased_mib", "decoded"),
    [
        (SPEC, 5000, True),
        (SPEC, 1142, True),
        (SPEC, 1141, False),
        (SPEC, 500, False),  # tiled
        (replace(SPEC, files={"diffusion_model": "/a", "llm": "/b", "vae": "/c"}), 5000, False),
    ],
)
def test_previews_are_decoded_where_the_lease_covers_it_beside_the_steps(
    spec: EngineSpec, leased_mib: int, decoded: bool
) -> None:
    asked = replace(LEASED, transient_mib=leased_mib)
    assert settings_of(asked, spec).previews.decoded == decoded


def test_strength_is_of_a_picture_to_start_from() -> None:
    assert settings_of().strength is None
    started = replace(LEASED, init_image=b"x")
    assert settings_of(started).strength == 0.75
    assert settings_of(replace(started, strength=0.0)).strength == 0.0


def test_a_default_tiling_of_the_model_is_taken() -> None:
    assert settings_of(spec=replace(SPEC, tiling=Tiling(default="on"))).tiled


def test_lossless_by_default_is_for_the_default_format_alone() -> None:
    spec = replace(SPEC, output=Output(lossless=True))
    assert settings_of(spec=spec).output.lossless
    jpeg = replace(LEASED, output=AskedOutput(format="jpeg"))
    assert not settings_of(jpeg, spec).output.lossless


def test_a_spec_comes_through_json_as_it_was() -> None:
    assert spec_of(as_json(SPEC)) == SPEC


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Asked(reference_images=(b"x",)), Reason.MODALITY_UNSUPPORTED),
        (Asked(init_image=b"x" * (81 << 20)), Reason.PAYLOAD_TOO_LARGE),
        (Asked(mask=b"x"), Reason.INVALID_REQUEST),
        (Asked(output=AskedOutput(quality=101)), Reason.INVALID_REQUEST),
        (Asked(output=AskedOutput(format="jpeg", lossless=True)), Reason.INVALID_REQUEST),
        (Asked(eta=float("inf")), Reason.INVALID_REQUEST),
        (Asked(clip_skip=13), Reason.INVALID_REQUEST),
    ],
)
def test_what_the_model_cannot_do_is_refused(asked: Asked, reason: Reason) -> None:
    with pytest.raises(Fault) as caught:
        check(asked, SPEC)
    assert caught.value.reason is reason


def test_a_size_that_is_too_large_names_what_is_not() -> None:
    with pytest.raises(Fault) as caught:
        size_of(SPEC, 4096, 4096)
    assert caught.value.reason is Reason.IMAGE_TOO_LARGE
    assert caught.value.metadata == {"param": "width_px", "max_px": str(4 << 20)}
