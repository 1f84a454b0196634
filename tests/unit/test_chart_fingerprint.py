"""Whom the chart restarts is whom the code says has to restart."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from chassis.config import Document, load
from chassis.sections import fingerprint
from tests.kube.chart import Values, configuration, rendered
from tests.unit.test_chart_rolling import ROLLS, rolled

NO_CONFIGURATION = {"an image", "an environment"}


def document(values: Values, folder: Path) -> Document:
    """The configuration of the chart, read as the services read it."""
    folder.mkdir()
    file = folder / "cohabit.yaml"
    file.write_text(yaml.safe_dump(configuration(rendered(values))))
    return load(file)


@pytest.mark.parametrize("what", [each for each in ROLLS if each not in NO_CONFIGURATION])
def test_a_checksum_changes_when_a_fingerprint_does(what: str, tmp_path: Path) -> None:
    values: Mapping[str, object] = ROLLS[what][0]
    before, after = document({}, tmp_path / "before"), document(values, tmp_path / "after")
    services = {*before.grpc_services(), "edge"} & {*after.grpc_services(), "edge"}
    changed = {s for s in services if fingerprint(before, s) != fingerprint(after, s)}
    assert changed == rolled(values)
