"""The guide to the configuration names every key there is, no other, and the true defaults."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel

from chassis.config import House
from edge.config import EdgeConfig
from services.broker.config import BrokerConfig, ForeignSection
from services.llm.config import LlmConfig
from services.llm.config import ModelConfig as LlmModelConfig
from services.scheduler.config import (
    FairnessConfig,
    LaneConfig,
    ModelRuleConfig,
    ResidencyConfig,
    SchedulerConfig,
)
from services.simulated.config import ModelConfig as SimulatedModelConfig
from services.simulated.config import SimulatedConfig

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "configuration.md"

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


def documented() -> dict[str, dict[str, str]]:
    """By heading: the keys of its table, each with the default that is written there."""
    found: dict[str, dict[str, str]] = {}
    for part in re.split(r"^##+ ", GUIDE.read_text(), flags=re.MULTILINE)[1:]:
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
        case int() | float():
            return f"{value:g}"
        case str() | Path() if str(value):
            return f"`{value}`"
        case _:
            return None


def test_every_heading_is_a_section_and_every_section_has_one() -> None:
    assert list(documented()) == list(SECTIONS)


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_guide_names_every_key_and_no_other(heading: str) -> None:
    assert set(documented()[heading]) == set(SECTIONS[heading].model_fields)


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_guide_names_the_true_defaults(heading: str) -> None:
    written = documented()[heading]
    for key, field in SECTIONS[heading].model_fields.items():
        if field.is_required():
            assert written[key] == "required", key
        elif (default := as_written(field.default)) is not None:
            assert written[key].split(" ")[0] == default, key
        else:
            assert written[key] != "required", key
