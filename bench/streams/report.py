"""The table of streams, for people and for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

LEAST_RATIO = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """One number of streams: medians in tokens a second by way, and ours over the rival's."""

    streams: int
    tokens_per_s: Mapping[str, float]
    ratio: float
    """The median of the rounds' ratios."""
    low: float
    high: float
    outside_percent: float = 0.0
    """Of the loop alone: time outside the native decode, sampling included."""

    @property
    def passes(self) -> bool:
        """At least as fast."""
        return self.ratio >= LEAST_RATIO

    def as_json(self) -> dict[str, Any]:
        """Everything, for machines."""
        return asdict(self) | {"passes": self.passes}


def show(rows: Sequence[Row], threads: int, rounds: int, console: Console) -> None:
    """Print the table and the verdict."""
    table = Table(
        title=f"tokens a second, all streams together; {threads} decode thread(s), "
        f"{rounds} rounds",
        title_justify="left", box=box.SIMPLE, pad_edge=False,
    )  # fmt: skip
    table.add_column("streams", justify="right")
    for name in rows[0].tokens_per_s:
        table.add_column(name, justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("least to most", justify="right")
    table.add_column("outside decode", justify="right")
    for row in rows:
        ratio = Text(f"{row.ratio:.3f}", style="green" if row.passes else "bold red")
        speeds = [f"{speed:.1f}" for speed in row.tokens_per_s.values()]
        table.add_row(
            str(row.streams),
            *speeds,
            ratio,
            f"{row.low:.2f} to {row.high:.2f}",
            f"{row.outside_percent:.1f} %",
        )
    console.print(table)
    kept = all(row.passes for row in rows)
    word, style = ("PASS", "bold green") if kept else ("FAIL", "bold red")
    said = Text(f"at least {LEAST_RATIO:g} times llama-server at each: ")
    console.print(said.append(word, style=style))
