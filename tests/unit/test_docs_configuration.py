"""The guide to the configuration names every key there is, no other, and the true defaults."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel

from chassis.config import House
from edge.config import EdgeConfig
from edge.keys.file import KeyEntry
from services.broker.config import BrokerConfig, ForeignSection
from services.jobs.config import JobsConfig
from services.llm.config import LlmConfig
from services.llm.config import ModelConfig as LlmModelConfig
from services.matte.config import MatteConfig
from services.matte.config import ModelConfig as MatteModelConfig
from services.scheduler.config import (
    FairnessConfig,
    LaneConfig,
    ModelRuleConfig,
    ResidencyConfig,
    SchedulerConfig,
)
from services.simulated.config import ModelConfig as SimulatedModelConfig
from services.simulated.config import SimulatedConfig

GUIDES = Path(__file__).parents[2] / "docs" / "guides"

SECTIONS: Mapping[str, type[BaseModel]] = {
    "Shared keys": House,
    "`broker`": BrokerConfig,
    "`broker.foreign`": ForeignSection,
    "`scheduler`": SchedulerConfig,
    "`scheduler.lanes`, by name": LaneConfig,
    "`scheduler.fairness`": FairnessConfig,
    "`scheduler.residency`": ResidencyConfig,
    "`scheduler.residency.models`, by model": ModelRuleConfig,
    "`llm`": LlmConfig,
    "`llm.models`, by name": LlmModelConfig,
    "`simulated`": SimulatedConfig,
    "`simulated.models`, by name": SimulatedModelConfig,
    "`edge`": EdgeConfig,
}
"""Headings of the guide, and what is configured below them."""

ELSEWHERE: Mapping[str, Mapping[str, type[BaseModel]]] = {
    "matting.md": {"`matte`": MatteConfig, "`matte.models`, by name": MatteModelConfig},
    "jobs.md": {"`jobs`": JobsConfig},
    "keys.md": {"`keys_file`, by name": KeyEntry},
}
"""Guides that hold the tables of their own service."""

ALL: Mapping[str, type[BaseModel]] = {
    **SECTIONS,
    **{name: kind for told in ELSEWHERE.values() for name, kind in told.items()},
}


def all_documented() -> dict[str, dict[str, str]]:
    """Of every guide that has tables of keys."""
    found = documented()
    for guide, sections in ELSEWHERE.items():
        found |= {h: keys for h, keys in documented(guide).items() if h in sections}
    return found


def documented(guide: str = "configuration.md") -> dict[str, dict[str, str]]:
    """By heading: the keys of its table, each with the default that is written there."""
    found: dict[str, dict[str, str]] = {}
    text = (GUIDES / guide).read_text()
    for part in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        found[heading] = {}
        for row in re.findall(r"^\| (`.*)$", text, flags=re.MULTILINE):
            names, default = row.split(" | ")[:2]
            keys = re.findall(r"`(\w+)`", names)
            defaults = default.split(", ") if len(keys) > 1 else [default]
            found[heading] |= dict(zip(keys, defaults * len(keys), strict=False))
    return found


def as_written(value: object) -> str | None:
    """A default as the guide writes it; None: it is written in words."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return f"{value:g}"
        case str() | Path() if str(value):
            return f"`{value}`"
        case _:
            return None


def test_every_heading_is_a_section_and_every_section_has_one() -> None:
    assert list(documented()) == list(SECTIONS)


@pytest.mark.parametrize("heading", ALL)
def test_the_guide_names_every_key_and_no_other(heading: str) -> None:
    assert set(all_documented()[heading]) == set(ALL[heading].model_fields)


@pytest.mark.parametrize("heading", ALL)
def test_the_guide_names_the_true_defaults(heading: str) -> None:
    written = all_documented()[heading]
    for key, field in ALL[heading].model_fields.items():
        if field.is_required():
            assert written[key] == "required", key
        elif (default := as_written(field.default)) is not None:
            assert written[key].split(" ")[0] == default, key
        else:
            assert written[key] != "required", key
