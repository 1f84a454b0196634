"""The guide to pictures: its configurations load, its tables name every key and family there is."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from services.diffusion.config import (
    DefaultsConfig,
    DiffusionConfig,
    FileConfig,
    ModelConfig,
    OutputConfig,
    PeakConfig,
    PlacementConfig,
    SizesConfig,
    TilingConfig,
)
from services.diffusion.families import FAMILIES

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "pictures.md").read_text()
SECTIONS: Mapping[str, type[BaseModel]] = {
    "`diffusion`": DiffusionConfig,
    "`diffusion.models`, by name": ModelConfig,
    "`diffusion.models.*.files`, by what they are": FileConfig,
    "`diffusion.models.*.defaults`": DefaultsConfig,
    "`diffusion.models.*.sizes`": SizesConfig,
    "`diffusion.models.*.placement`": PlacementConfig,
    "`diffusion.models.*.tiling`": TilingConfig,
    "`diffusion.models.*.output`": OutputConfig,
    "`diffusion.models.*.peak`": PeakConfig,
}


def rows(heading: str) -> list[list[str]]:
    part = GUIDE.split(f"# {heading}\n")[1].split("\n#")[0]
    return [row.split(" | ") for row in re.findall(r"^\| (`.*)$", part, flags=re.MULTILINE)]


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_is_told_and_no_other(heading: str) -> None:
    told = [key for row in rows(heading) for key in re.findall(r"`(\w+)`", row[0])]
    assert sorted(told) == sorted(SECTIONS[heading].model_fields)


def test_every_family_is_told_with_its_defaults() -> None:
    told = {row[0].strip("`"): row for row in rows("Families")[1:]}
    assert told.keys() == FAMILIES.keys()
    for name, family in FAMILIES.items():
        if not family.why_not:
            wanted = family.defaults
            figures = told[name][2]
            assert figures.startswith(f"{wanted.steps}, {wanted.guidance:g}")
            assert f"`{wanted.sampler}`" in figures
            assert figures.endswith(str(wanted.width_px))
            assert told[name][3].startswith(str(family.sizes.multiple_px))


def test_its_configurations_load() -> None:
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)]
    sections = [block["diffusion"] for block in blocks if "diffusion" in block]
    assert len(sections) == 3
    for section in sections:
        config = DiffusionConfig.model_validate(section)
        for model in config.models.values():
            config.spec(model, Path("/models"), on_card=True)
