"""The pages link to what is there, and the configuration beside a guide can be used."""

import re
from pathlib import Path

import pytest

from cli.simulation.configured import setup_of

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """What can be linked to in a page: its headings, as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_example_of_the_guide_can_be_simulated() -> None:
    assert len(setup_of(ROOT / "docs" / "guides" / "five.yaml").profiles) == 5
