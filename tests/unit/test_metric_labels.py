"""Every label of every metric has a bound and stands in the guide; names follow conventions."""

import re
from pathlib import Path

import pytest

from tests.metrics_kit import ROOT, Family, families

GUIDE = ROOT / "docs" / "guides" / "metrics.md"
BOUNDS = {
    "service": "services of the house",
    "route": "templates of the routes",
    "status": "HTTP statuses of the table of errors",
    "outcome": "reasons of the table of errors, and three words",
    "reason": "reasons of the table of errors, and one word",
    "cause": "an enum",
    "model": "models that are configured; at the edge at most 256",
    "state": "an enum",
    "kind": "an enum",
    "tier": "an enum",
    "lane": "lanes that are configured",
    "device": "devices of the machine",
    "grpc_service": "services of the protos",
    "grpc_method": "methods of the protos",
    "grpc_code": "codes of gRPC",
    "version": "one",
}
"""Nothing that a client chooses: no key, no path, no name that is not configured."""

FAMILIES = families()
MAKERS = re.compile(r"^\s*\w+ = (?:Counter|Gauge|Histogram|Summary)\($", re.MULTILINE)


def test_all_metrics_are_made_where_they_are_looked_for() -> None:
    for folder in ("chassis", "hosting", "services", "edge", "cli"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "metrics.py":
                assert not MAKERS.search(path.read_text()), path
    assert len(FAMILIES) > 50


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_keeps_the_rules(family: Family) -> None:
    assert family.name.startswith("cohabit_")
    assert set(family.labels) <= BOUNDS.keys()
    assert family.help.endswith(".")
    assert (family.type == "counter") == family.name.endswith("_total")
    assert not re.search(r"_(ms|mib|kib|gib|minutes|percent)(_|$)", family.name), "base units"
    if family.type == "histogram":
        assert family.name.endswith("_seconds")


def documented(guide: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By name: the type and the labels that the guide tells."""
    rows = re.findall(
        r"^\| `(cohabit_\w+)` \| (\w+) \| ([^|]*) \|", guide.read_text(), re.MULTILINE
    )
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_the_guide_tells_of_every_metric_and_no_other() -> None:
    assert documented(GUIDE) == {one.name: (one.type, one.labels) for one in FAMILIES}
