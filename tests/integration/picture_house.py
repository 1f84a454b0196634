"""The parts of a house that has to do with pictures: a painter, a network for mattes, jobs."""

from pathlib import Path
from typing import Any

from tests.integration.house import ROOT
from tests.tiny_diffusion import make_tiny_diffusion

NETWORK = ROOT / "models" / "u2netp.onnx"
PAINTER, CUTTER = "tiny-paint", "u2netp"
LORA = "ink"


def picture_sections(models: Path, **painter: Any) -> dict[str, dict[str, object]]:
    """Sections of the configuration; makes the painter and a LoRA for it below `models`.

    `painter` are changes to its model.
    """
    made = make_tiny_diffusion(models / "paint", lora=True)
    assert made.lora is not None
    (models / "loras").mkdir()
    made.lora.rename(models / "loras" / f"{LORA}.safetensors")
    tiny = {
        "family": "ovis-image",
        "files": {
            "diffusion_model": str(made.diffusion_model),
            "llm": str(made.llm),
            "taesd": str(made.taesd),
        },
        "defaults": {"steps": 1, "guidance": 1, "width_px": 64, "height_px": 64},
        "sizes": {"multiple_px": 16, "min_side_px": 16, "max_side_px": 2048, "max_px": 1 << 20},
        "peak": {
            "condition_mib": 300,
            "denoise": {"base_mib": 8, "per_mpx_mib": 600},
            "decode": {"base_mib": 8, "per_mpx_mib": 700},
        },
        "placement": {"threads": 1},
        "references": True,
    }
    return {
        "diffusion": {"models": {PAINTER: {**tiny, **painter}}, "lora_dir": "loras"},
        "matte": {"models": {CUTTER: {"path": str(NETWORK), "threads": 1}}},
        "jobs": {},
    }
