"""The table of what a request costs, and its verdict."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

MOST_RATIO = 0.2
"""Of the rival's CPU time."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One proxy, one kind of request: medians over the rounds."""

    cpu_ms: float
    """Of all its processes, per request."""
    p50_ms: float
    p99_ms: float
    per_s: float
    """Requests, all clients together."""


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of request, at one number of workers."""

    ask: str
    workers: int
    ours: Cost
    rival: Cost
    ratio: float
    """The median of the rounds' ratios of CPU time."""

    @property
    def passes(self) -> bool:
        """At most a fifth."""
        return self.ratio <= MOST_RATIO

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return asdict(self) | {"passes": self.passes}


def cost_of(rounds: Sequence[Cost]) -> Cost:
    """The medians."""
    return Cost(
        *(
            statistics.median(getattr(it, name) for it in rounds)
            for name in Cost.__dataclass_fields__
        )
    )


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table and the verdict."""
    table = Table(
        title="CPU time of the proxy alone, user and system of all its processes, per request",
        title_justify="left", box=box.SIMPLE, pad_edge=False,
    )  # fmt: skip
    table.add_column("request")
    for name in (
        "workers", "ours, CPU ms", "LiteLLM's", "ratio",
        "p50 ms", "theirs", "p99 ms", "theirs", "requests/s", "theirs",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for row in rows:
        ours, rival = row.ours, row.rival
        table.add_row(
            row.ask, str(row.workers), f"{ours.cpu_ms:.2f}", f"{rival.cpu_ms:.2f}",
            Text(f"{row.ratio:.3f}", style="green" if row.passes else "bold red"),
            f"{ours.p50_ms:.1f}", f"{rival.p50_ms:.1f}",
            f"{ours.p99_ms:.1f}", f"{rival.p99_ms:.1f}",
            f"{ours.per_s:.0f}", f"{rival.per_s:.0f}",
        )  # fmt: skip
    console.print(table)
    kept = all(row.passes for row in rows)
    word, style = ("PASS", "bold green") if kept else ("FAIL", "bold red")
    said = Text(f"at most {MOST_RATIO:g} of LiteLLM's CPU time at each: ")
    console.print(said.append(word, style=style))
