"""Whom the chart restarts is whom the code says has to restart."""

from pathlib import Path

import pytest
import yaml

from chassis.config import Document, load
from chassis.sections import fingerprint
from tests.kube.chart import Values, configuration, rendered
from tests.unit.test_chart_configuration import ROLLS, rolled

NO_CONFIGURATION = {"an image"}
SECTIONS_CHANGE = {"a section more", "a section less"}
"""All the house's addresses change then. The chart knows who dials whom; a fingerprint need not."""


def document(values: Values, folder: Path) -> Document:
    """The configuration of the chart, read as the services read it."""
    folder.mkdir()
    file = folder / "cohabit.yaml"
    file.write_text(yaml.safe_dump(configuration(rendered(values))))
    return load(file)


def changed(values: Values, folder: Path) -> set[str]:
    """The services, of those that stay, whose fingerprint is another."""
    before, after = document({}, folder / "before"), document(values, folder / "after")
    stay = {*before.grpc_services(), "edge"} & {*after.grpc_services(), "edge"}
    return {each for each in stay if fingerprint(before, each) != fingerprint(after, each)}


@pytest.mark.parametrize("what", sorted(ROLLS.keys() - NO_CONFIGURATION - SECTIONS_CHANGE))
def test_a_checksum_changes_when_a_fingerprint_does(what: str, tmp_path: Path) -> None:
    assert rolled(ROLLS[what][0]) == changed(ROLLS[what][0], tmp_path)


@pytest.mark.parametrize("what", sorted(SECTIONS_CHANGE))
def test_who_dials_a_section_that_comes_or_goes_restarts(what: str, tmp_path: Path) -> None:
    assert rolled(ROLLS[what][0]) <= changed(ROLLS[what][0], tmp_path)
