"""The manifests are the chart's, and the page of the chart names values that there are."""

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.kube.chart import CHART, MANIFESTS, ROOT, objects_in, rendered, tools

PAGE = (ROOT / "docs" / "guides" / "kubernetes.md").read_text()
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_manifests_are_what_the_chart_says() -> None:
    tools()
    done = subprocess.run(
        [str(ROOT / "scripts" / "render_manifests.sh"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "sharing"), [("cpu", "none"), ("card", "whole")])
def test_each_manifest_is_the_chart_with_one_value(name: str, sharing: str) -> None:
    written = objects_in((MANIFESTS / f"{name}.yaml").read_text())
    assert written == rendered({"gpu": {"sharing": sharing}})
    # They go to the namespace that is named to kubectl.
    assert not any("namespace" in each["metadata"] for each in written)


def named() -> list[tuple[str, str]]:
    """The values of the page's table, and what it says of their defaults."""
    table = PAGE.split("## The values")[1].split("\n## ")[0]
    return re.findall(r"^\| (`[a-z].*?) \| (.*?) \|", table, flags=re.MULTILINE)


def test_the_page_names_values_that_there_are_and_every_group_of_them() -> None:
    missing = object()
    paths = [path for row, _ in named() for path in re.findall(r"`([\w.]+)`", row)]
    for path in paths:
        value: Any = DEFAULTS
        for part in path.split("."):
            value = value.get(part, missing) if isinstance(value, dict) else missing
        assert value is not missing, path
    groups = {name for name, value in DEFAULTS.items() if isinstance(value, dict)}
    services = {name for name in groups if set(DEFAULTS[name]) == {"resources"}}
    assert groups - services <= {path.split(".")[0] for path in paths}


def test_the_page_names_the_true_defaults() -> None:
    for row, default in named():
        paths = re.findall(r"`([\w.]+)`", row)
        if len(paths) == 1 and (written := re.fullmatch(r"`?([\w]+)`?", default)):
            value: Any = DEFAULTS
            for part in paths[0].split("."):
                value = value[part]
            if not isinstance(value, dict | list):
                assert str(value).lower() == written[1].lower(), paths[0]


def test_every_way_of_sharing_is_told() -> None:
    section = PAGE.split("## Sharing one card")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)) == {
        "none",
        "whole",
        "timeSlicing",
        "mps",
    }
