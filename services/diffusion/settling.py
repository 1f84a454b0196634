"""From what was asked to what applies: defaults, rounding, replacements. No file is read here."""

from chassis.errors import Fault, Reason
from services.diffusion.core import peak
from services.diffusion.core.sizes import Settled
from services.diffusion.engine import EngineSpec
from services.diffusion.values import Asked, Lora, Output, Previews, Settings

_STRENGTH = 0.75
_PREVIEW_PX = 256


def settle(
    asked: Asked, spec: EngineSpec, size: Settled, loras: tuple[Lora, ...], drawn_seed: int
) -> Settings:
    """What applies to a request that was checked; `drawn_seed` stands in for one left open.

    Raises Fault LEASE_REQUIRED when the lease does not cover the peak.
    """
    defaults, wish = spec.defaults, asked.output
    guidance = defaults.guidance if asked.guidance is None else asked.guidance
    if guidance == 0 and spec.zero_guidance is not None:
        guidance = spec.zero_guidance
    distilled, tiled = asked.distilled_guidance, _tiled(asked, spec, size)
    return Settings(
        prompt=asked.prompt,
        negative_prompt=asked.negative_prompt,
        size=size,
        steps=asked.steps or defaults.steps,
        guidance=guidance,
        distilled_guidance=defaults.distilled_guidance if distilled is None else distilled,
        image_guidance=asked.image_guidance,
        sampler=asked.sampler or defaults.sampler,
        scheduler=asked.scheduler or defaults.scheduler,
        seed=drawn_seed if asked.seed is None else asked.seed,
        seeded=asked.seed is not None,
        batch=asked.batch,
        loras=loras,
        tiled=tiled,
        strength=_strength(asked),
        clip_skip=asked.clip_skip or defaults.clip_skip,
        eta=asked.eta,
        output=Output(
            format=wish.format or spec.output.format,
            quality=wish.quality or spec.output.quality,
            lossless=wish.lossless or (wish.format is None and spec.output.lossless),
            webp_method=spec.output.webp_method,
            parameters=not wish.omit_parameters,
        ),
        previews=Previews(
            asked.previews.every_steps,
            asked.previews.max_px or _PREVIEW_PX,
            decoded=not tiled and _decodes_previews(asked, spec, size),
        ),
        cached=asked.seed is not None and not asked.no_result_cache,
    )


def _strength(asked: Asked) -> float | None:
    if not asked.init_image:
        return None
    return _STRENGTH if asked.strength is None else asked.strength


def _tiled(asked: Asked, spec: EngineSpec, size: Settled) -> bool:
    """Whether latents become pixels tile by tile."""
    tiling = asked.tiling or spec.tiling.default
    picture = _counted(asked, size)
    untiled_mib = peak.untiled_mib(spec.peak, picture)
    tiled_mib = peak.tiled_mib(spec.peak, picture, spec.tiling.tile_px)
    tiled = tiling == "on" or (tiling == "auto" and asked.transient_mib < untiled_mib)
    needed_mib = tiled_mib if tiled else untiled_mib
    if not asked.transient_lease_id or asked.transient_mib < needed_mib:
        raise Fault(
            Reason.LEASE_REQUIRED,
            f"This picture takes {needed_mib} MiB at its peak, and the lease that came with it "
            f"covers {asked.transient_mib if asked.transient_lease_id else 0} MiB; ask the "
            "scheduler for as much as PlanGeneration says, or call the model service.",
            metadata={"param": "transient_mib", "needed_mib": str(needed_mib)},
        )
    return tiled


def _decodes_previews(asked: Asked, spec: EngineSpec, size: Settled) -> bool:
    """Whether the small decoder may work beside the denoise steps: it takes memory of its own."""
    needed_mib = peak.previewed_mib(spec.peak, _counted(asked, size))
    return "taesd" in spec.files and needed_mib <= asked.transient_mib


def _counted(asked: Asked, size: Settled) -> peak.Size:
    return peak.Size(size.width_px * size.height_px, asked.input_images)


def trial(spec: EngineSpec, size: Settled) -> Settings:
    """The cheapest picture of that size: what a model is proved with."""
    defaults = spec.defaults
    return Settings(
        prompt="",
        negative_prompt="",
        size=size,
        steps=1,
        guidance=1.0,
        distilled_guidance=defaults.distilled_guidance,
        image_guidance=None,
        sampler=defaults.sampler,
        scheduler=defaults.scheduler,
        seed=0,
        seeded=False,
        batch=1,
        loras=(),
        tiled=False,
        strength=None,
        clip_skip=defaults.clip_skip,
        eta=None,
        output=Output("ppm", 1, lossless=False, webp_method=0, parameters=False),
        previews=Previews(),
        cached=False,
    )
