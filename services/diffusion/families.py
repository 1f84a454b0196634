"""The families of diffusion models: their files, what they accept, and what a picture costs. Pure.

The memory figures are what the native library printed for its compute buffers in its own reports,
from above: 6,656 MiB for the decode of 1024 x 1024 pixels by the autoencoder of SD, SDXL and Flux
(416 MiB a tile of 256 x 256), 14,500 by that of Qwen-Image. Direct convolutions take 2,944 in place
of 6,656. The small decoder (`taesd`) was measured: 1,920, and 120 a tile. Without flash attention
the scores of all heads are kept: that part grows with the square of the pixels.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from services.diffusion.core.peak import Growth, PeakProfile
from services.diffusion.engine import Defaults, FamilyName, Placement, Role, Sizes

_DECODE_MIB = 6656.0
_DIRECT_DECODE_MIB = 2944.0
_QWEN_DECODE_MIB = 14_500.0
_TAESD_DECODE_MIB = 1_950.0
_DECODER: tuple[Role, ...] = ("vae", "taesd")

Group = tuple[Role, ...]
"""Roles of which one is needed."""


@dataclass(frozen=True, slots=True)
class Family:
    """What models of one kind have in common."""

    needs: tuple[Group, ...]
    """Of each group one file, unless all is in one."""
    whole: bool = False
    """A single file (`model`) may hold all parts."""
    extra: tuple[Role, ...] = ()
    """Files that it may have besides."""
    defaults: Defaults = field(default_factory=Defaults)
    sizes: Sizes = field(default_factory=Sizes)
    zero_guidance: float | None = None
    condition_mib: float = 256.0
    """Compute buffers of the text encoders."""
    denoise_mib: float = 500.0
    """Of a step at 1024 x 1024 with flash attention."""
    scores_mib: float = 800.0
    """What attention takes there without it."""
    decode_mib: float = _DECODE_MIB
    why_not: str = ""
    """Why its models cannot be loaded; empty: they can."""

    @property
    def roles(self) -> frozenset[Role]:
        """Every file that a model of it may have."""
        whole: tuple[Role, ...] = ("model",) if self.whole else ()
        return frozenset(whole + self.extra + tuple(role for group in self.needs for role in group))


_UNET = Sizes(multiple_px=64)
_TRANSFORMER = Sizes(multiple_px=16)


def _at(side_px: int, steps: int, guidance: float, **more: object) -> Defaults:
    values: dict[str, object] = {"sampler": "euler", "width_px": side_px, "height_px": side_px}
    return Defaults(steps=steps, guidance=guidance, **(values | more))  # type: ignore[arg-type]


FAMILIES: Mapping[FamilyName, Family] = MappingProxyType(
    {
        "sd1": Family(
            needs=(("diffusion_model",), ("clip_l",), _DECODER),
            whole=True,
            defaults=_at(512, 20, 7.0, sampler="euler_a"),
            sizes=_UNET,
            scores_mib=2_000.0,
        ),
        "sd2": Family(
            needs=(("diffusion_model",), ("clip_l",), _DECODER),
            whole=True,
            defaults=_at(768, 20, 7.0, sampler="euler_a"),
            sizes=_UNET,
            scores_mib=2_000.0,
        ),
        "sdxl": Family(
            needs=(("diffusion_model",), ("clip_l",), ("clip_g",), _DECODER),
            whole=True,
            defaults=_at(1024, 25, 6.0, sampler="dpmpp_2m", scheduler="karras"),
            sizes=_UNET,
        ),
        "flux": Family(
            needs=(("diffusion_model",), ("clip_l",), ("t5xxl",), _DECODER),
            whole=True,
            defaults=_at(1024, 20, 1.0),
            sizes=_TRANSFORMER,
            zero_guidance=1.0,
            denoise_mib=1_400.0,
            scores_mib=2_000.0,
        ),
        "chroma": Family(
            needs=(("diffusion_model",), ("t5xxl",), _DECODER),
            defaults=_at(1024, 26, 4.0),
            sizes=_TRANSFORMER,
            denoise_mib=1_400.0,
            scores_mib=2_000.0,
        ),
        "qwen-image": Family(
            needs=(("diffusion_model",), ("llm",), ("vae",)),
            extra=("llm_vision",),
            defaults=_at(1024, 20, 2.5),
            sizes=_TRANSFORMER,
            condition_mib=512.0,
            denoise_mib=1_400.0,
            scores_mib=2_000.0,
            decode_mib=_QWEN_DECODE_MIB,
        ),
        "z-image": Family(
            needs=(("diffusion_model",), ("llm",), _DECODER),
            defaults=_at(1024, 8, 1.0),
            sizes=_TRANSFORMER,
            zero_guidance=1.0,
            condition_mib=512.0,
            denoise_mib=800.0,
            scores_mib=2_400.0,
        ),
        "ovis-image": Family(
            needs=(("diffusion_model",), ("llm",), _DECODER),
            defaults=_at(1024, 20, 5.0),
            sizes=_TRANSFORMER,
            condition_mib=512.0,
            denoise_mib=1_200.0,
            scores_mib=2_000.0,
        ),
        "wan": Family(
            needs=(("diffusion_model",), ("t5xxl",), ("vae",)),
            why_not="Models of family wan make videos, which this version of Cohabit does not "
            "build yet; remove the model, or choose another family.",
        ),
    }
)


def files_problem(family: FamilyName, roles: Collection[Role]) -> str:
    """What is wrong with a model that has files of these roles; empty: nothing."""
    known, given = FAMILIES[family], frozenset(roles)
    if known.why_not:
        return known.why_not
    if foreign := given - known.roles:
        return (
            f"A model of family {family} has no file '{min(foreign)}'; it takes: "
            f"{', '.join(sorted(known.roles))}."
        )
    if "model" in given and known.whole:
        return (
            "Name either 'model', which holds all parts, or 'diffusion_model', not both."
            if "diffusion_model" in given
            else ""
        )
    for group in known.needs:
        if not given.intersection(group):
            return (
                f"A model of family {family} needs the file {' or '.join(map(repr, group))}"
                f"{', or all parts in one file: ' + repr('model') if known.whole else ''}."
            )
    return ""


def peak_profile(
    family: FamilyName, roles: Collection[Role], placement: Placement, *, on_card: bool
) -> PeakProfile:
    """The published figures of a family, for these files, where they are computed. Pure."""
    known = FAMILIES[family]
    scores_mib = 0.0 if placement.flash_attention else known.scores_mib
    condition_mib = 0.0 if on_card and placement.clip_on_cpu else known.condition_mib
    return PeakProfile(
        condition_mib=condition_mib,
        denoise=Growth(64.0, known.denoise_mib, scores_mib),
        decode=Growth(0.0, _decode_mib(known, roles, placement, on_card=on_card), 0.0),
        preview=Growth(0.0, 0.0 if on_card and placement.vae_on_cpu else _TAESD_DECODE_MIB, 0.0),
    )


def _decode_mib(
    family: Family, roles: Collection[Role], placement: Placement, *, on_card: bool
) -> float:
    if on_card and placement.vae_on_cpu:
        return 0.0
    if "taesd" in roles and not placement.taesd_previews_only:
        return _TAESD_DECODE_MIB
    if placement.vae_conv_direct:
        return family.decode_mib * _DIRECT_DECODE_MIB / _DECODE_MIB
    return family.decode_mib
