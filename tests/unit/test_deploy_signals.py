"""What deploy/ asks of the metrics is there, of the type and with the labels that it takes for
granted; promtool, where it is installed, runs the alerts' own tests.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.metrics_kit import ROOT, Family, families

PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "cohabit.json"
GUIDE = ROOT / "docs" / "guides" / "dashboard.md"
OURS = {one.name: one for one in families()}
NAME = re.compile(r"\b(cohabit_\w+)\b(?:\{([^}]*)\})?(\[[^\]]+\])?")
GROUPING = re.compile(r"\b(?:by|on|ignoring) \(([^)]*)\)")
ADDED = {"le", "service", "job", "instance"}
"""Labels beyond a family's own: of buckets, of the edge's merging, of Prometheus."""


def alerts() -> dict[str, str]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def panels() -> list[dict[str, object]]:
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    yield from alerts().items()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield f"{panel['title']} {target['refId']}", target["expr"]


def family_of(name: str) -> Family:
    """The metric that a name in a query is of."""
    for ending in ("_bucket", "_sum", "_count"):
        base = name.removesuffix(ending)
        if base != name and base in OURS and OURS[base].type == "histogram":
            return OURS[base]
    return OURS[name]


QUERIES = list(queries())


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_query_asks_for_what_there_is(title: str, query: str) -> None:
    plain = re.sub(r'"[^"]*"', '""', query)
    used = [(family_of(name), labels, span) for name, labels, span in NAME.findall(plain) if name]
    known = ADDED | {label for family, _, _ in used for label in family.labels}
    assert used or "process_" in query or "up{" in query
    for family, selector, span in used:
        asked = set(re.findall(r"(\w+)\s*[=!]", selector))
        assert asked <= {*family.labels, *ADDED}, f"{title}: {family.name} has no such label"
        assert bool(span) == (family.type != "gauge") or "offset" in query, (
            f"{title}: {family.name} is a {family.type}"
        )
    for grouping in GROUPING.findall(plain):
        assert {label.strip() for label in grouping.split(",")} <= known, title


def test_the_test_can_fail() -> None:
    for wrong in (
        "cohabit_nothing",
        'cohabit_permits{model="x"}',
        "rate(cohabit_permits[5m])",
        "cohabit_prompt_tokens_total",
        "sum by (color) (cohabit_permits)",
    ):
        with pytest.raises((AssertionError, KeyError)):
            test_a_query_asks_for_what_there_is("wrong", wrong)


def test_every_alert_says_what_is_wrong_and_how_bad() -> None:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 20
    for rule in rules:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["annotations"]["description"].endswith(".")


def test_the_guide_goes_through_every_panel_and_alert() -> None:
    text = GUIDE.read_text()
    rows = re.findall(r"^\| ([^|`]+) \|[^|]*\|[^|]*\|$", text, re.MULTILINE)
    told = [row for row in rows if row not in {"panel", "---"}]
    assert told == [panel["title"] for panel in panels()]
    assert re.findall(r"^\| `(Cohabit\w+)` \|", text, re.MULTILINE) == list(alerts())


def test_panels_do_not_lie_over_each_other() -> None:
    everything = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian: prometheus) is not installed")
@pytest.mark.parametrize(
    "command",
    [
        ["check", "config", "scrape.yaml"],
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts_test.yaml"],
    ],
)
def test_promtool_agrees(command: list[str]) -> None:
    run = subprocess.run(
        [str(PROMTOOL), *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_file_of_alerts_is_where_the_scrape_looks_for_it() -> None:
    scrape = yaml.safe_load((PROMETHEUS / "scrape.yaml").read_text())
    assert [Path(name) for name in scrape["rule_files"]] == [Path("alerts.yaml")]
    (job,) = scrape["scrape_configs"]
    assert job["honor_labels"]
    assert job["job_name"] == "cohabit"
    assert 'job="cohabit"' in alerts()["CohabitDown"]
