"""What a soak found, for people and for machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.soak.clients import Tally
from bench.soak.verdict import MOST_GROWTH, Growth


@dataclass(frozen=True, slots=True)
class Found:
    """All of it."""

    minutes: float
    tally: Tally
    roles: Mapping[str, Growth]
    total: Growth
    left: list[str]
    """What is still there of requests that are over."""

    @property
    def passes(self) -> bool:
        """Flat, nothing left, every answer as it should be."""
        return self.total.flat and not self.left and not self.tally.wrong

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return {
            "minutes": self.minutes,
            "requests": dict(self.tally.asked),
            "wrong": self.tally.wrong,
            "complaints": self.tally.complaints,
            "left": self.left,
            "roles": {role: growth.as_json() for role, growth in self.roles.items()},
            "total": self.total.as_json(),
            "passes": self.passes,
        }


def show(found: Found, console: Console) -> None:
    """Print the tables and the verdict."""
    asked = found.tally.asked
    console.print(_memory(found))
    console.print(f"{asked.total()} requests of {len(asked)} kinds in {found.minutes:g} minutes")
    for said in (*found.tally.complaints, *(f"left: {one}" for one in found.left)):
        console.print(Text(said, style="red"))
    verdicts = {
        f"memory grew by at most {MOST_GROWTH:.0%}": found.total.flat,
        "nothing is left of any request": not found.left,
        "every answer was as it should be": not found.tally.wrong,
    }
    for what, kept in verdicts.items():
        word, style = ("PASS", "bold green") if kept else ("FAIL", "bold red")
        console.print(Text.assemble((word, style), f"  {what}"))


def _memory(found: Found) -> Table:
    table = Table(
        title="resident memory after the warm-up, MiB", title_justify="left", box=box.SIMPLE,
        pad_edge=False,
    )  # fmt: skip
    table.add_column("processes")
    for name in ("first quarter", "last quarter", "growth", "MiB an hour"):
        table.add_column(name, justify="right")
    for role, growth in (*found.roles.items(), ("all", found.total)):
        style = "" if role != "all" else "bold green" if growth.flat else "bold red"
        table.add_row(
            role, f"{growth.first_mib:.1f}", f"{growth.last_mib:.1f}", f"{growth.share:+.2%}",
            f"{growth.mib_per_h:+.1f}", style=style,
        )  # fmt: skip
    return table
