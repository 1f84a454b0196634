"""What a file is, by the names of its tensors: to find a wrong one before it is loaded. Pure.

Only what is certain is said: a file whose names tell nothing passes, and the load has the last
word. The names are those of the checkpoints that the native library reads.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum

from services.diffusion.engine import FamilyName, Role


class Kind(StrEnum):
    """What a file holds, in words."""

    WHOLE = "a whole checkpoint"
    DIFFUSION = "a diffusion model alone"
    VAE = "an autoencoder"
    TAESD = "a small autoencoder (TAESD)"
    CLIP = "a CLIP text encoder"
    T5 = "a T5 text encoder"
    LLM = "a language model"
    VISION = "a vision encoder"
    LORA = "a LoRA"


_DIFFUSION = (
    r"^(model\.diffusion_model\.)?((double|joint|input|(single_)?transformer)_blocks"
    r"|noise_refiner|down_blocks\.\d+\.attentions)\."
)
_SIGNS: tuple[tuple[Kind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (Kind.LORA, r"lora_(up|down)\.|\.lora_[AB]\."),
        (
            Kind.WHOLE,
            r"^(first_stage_model|cond_stage_model|conditioner\.embedders|text_encoders)\.",
        ),
        (Kind.DIFFUSION, _DIFFUSION),
        (Kind.TAESD, r"^(decoder|encoder)\.(layers\.)?\d+\.(conv\.\d+\.)?weight$"),
        (Kind.VAE, r"^(vae\.)?(decoder|encoder)\.(conv_in|conv1|mid|middle|mid_block)\."),
        (Kind.VISION, r"^(visual|v)\.(blk|blocks|patch_embed)|^mm\.0\."),
        (Kind.CLIP, r"(^|\.)text_model\.encoder\.layers\.|^transformer\.resblocks\."),
        (Kind.T5, r"^(encoder\.block\.\d+\.layer|enc\.blk\.\d+)\."),
        (Kind.LLM, r"^(model\.)?(language_model\.)?(layers\.\d+\.self_attn|blk\.\d+\.attn_q)\."),
    )
)
_LIKE: Mapping[Role, Collection[Kind]] = {
    "model": (Kind.WHOLE,),
    "diffusion_model": (Kind.DIFFUSION,),
    "vae": (Kind.VAE,),
    "taesd": (Kind.TAESD,),
    "clip_l": (Kind.CLIP,),
    "clip_g": (Kind.CLIP,),
    "t5xxl": (Kind.T5,),
    "llm": (Kind.LLM, Kind.VISION),
    "llm_vision": (Kind.VISION, Kind.LLM),
}
"""What passes for a role; files of language models that see hold both parts."""
_OF_FAMILY: tuple[tuple[re.Pattern[str], frozenset[FamilyName]], ...] = (
    (re.compile(r"^conditioner\.embedders\."), frozenset({"sdxl"})),
    (re.compile(r"^cond_stage_model\.transformer\."), frozenset({"sd1"})),
    (re.compile(r"^cond_stage_model\.model\."), frozenset({"sd2"})),
    (re.compile(r"(^|\.)distilled_guidance_layer\."), frozenset({"chroma"})),
    (re.compile(r"(^|\.)noise_refiner\."), frozenset({"z-image"})),
    (re.compile(r"(^|\.)transformer_blocks\.\d+\.img_mod\."), frozenset({"qwen-image"})),
    (re.compile(r"(^|\.)double_blocks\.\d+\.img_mlp\.gate_proj\."), frozenset({"ovis-image"})),
    (re.compile(r"(^|\.)double_blocks\."), frozenset({"flux", "chroma", "ovis-image"})),
    (re.compile(r"(^|\.)input_blocks\."), frozenset({"sd1", "sd2", "sdxl"})),
)
"""The first sign that a file shows."""


def kind_of(tensors: Collection[str]) -> Kind | None:
    """What a file with these tensors is; None: its names do not tell."""
    for kind, sign in _SIGNS:
        if any(sign.search(name) for name in tensors):
            return kind
    return None


def families_of(tensors: Collection[str]) -> frozenset[FamilyName]:
    """The families that a diffusion model with these tensors may be of; empty: not known."""
    for sign, families in _OF_FAMILY:
        if any(sign.search(name) for name in tensors):
            return families
    return frozenset()


def problem_of(role: Role, family: FamilyName, tensors: Collection[str]) -> str:
    """What is wrong with a file of that role, after its name; empty: nothing that can be seen."""
    kind = kind_of(tensors)
    if kind is not None and kind not in _LIKE[role]:
        fitting = [other for other, kinds in _LIKE.items() if kind in kinds]
        hint = f"; name it under '{fitting[0]}'" if fitting and kind is not Kind.LORA else ""
        return f"is {kind}, where files.{role} wants {next(iter(_LIKE[role]))}{hint}"
    if role in {"model", "diffusion_model"}:
        families = families_of(tensors)
        if families and family not in families:
            return f"is of family {' or '.join(sorted(families))}, not {family}"
    return ""
