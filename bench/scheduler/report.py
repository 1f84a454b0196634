"""Sections of figures on a page: tables and verdicts for people, JSON for machines.

Only ratios to a rival of the same run are compared with the baseline: times depend on the machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

MOST_WORSE_PERCENT = 30.0
"""A ratio that has grown by more since the baseline is a regression."""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing measured."""

    name: str
    figures: Mapping[str, float]
    """By column."""
    ratio: float | None = None
    """How many times its rival it costs; None: it is the rival."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a figure has to keep."""

    what: str
    value: float
    limit: float
    at_least: bool
    unit: str = ""

    @property
    def kept(self) -> bool:
        """It is."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Section:
    """Rows of the same columns, against one rival."""

    name: str
    title: str
    rival: str
    rows: Sequence[Row]
    limits: Sequence[Limit]


def limits_of(sections: Sequence[Section], baseline: Mapping[str, Any]) -> list[Limit]:
    """Those of the sections, and that no ratio is much worse than the baseline's."""
    changes = [
        (change, f"{section.title}: {row.name}")
        for section in sections
        for row in section.rows
        if (change := _change(row, section, baseline)) is not None
    ]
    limits = [limit for section in sections for limit in section.limits]
    if changes:
        worst, where = max(changes)
        limits.append(
            Limit(f"worse than the baseline ({where})", worst, MOST_WORSE_PERCENT, False, "%")
        )
    return limits


def as_json(
    machine: Mapping[str, Any], sections: Sequence[Section], limits: Sequence[Limit]
) -> dict[str, Any]:
    """Everything, for machines."""
    told: dict[str, Any] = {"machine": dict(machine)}
    for section in sections:
        told[section.name] = {
            row.name: {name: round(value, 3) for name, value in row.figures.items()}
            | ({} if row.ratio is None else {f"times {section.rival}": round(row.ratio, 4)})
            for row in section.rows
        }
    told["limits"] = [
        {"what": x.what, "value": round(x.value, 3), "limit": x.limit, "kept": x.kept}
        for x in limits
    ]
    told["passes"] = all(limit.kept for limit in limits)
    return told


def show(
    machine: Mapping[str, Any],
    sections: Sequence[Section],
    limits: Sequence[Limit],
    baseline: Mapping[str, Any],
    console: Console,
) -> None:
    """Tables and verdicts; `baseline` is an earlier run's JSON, or empty."""
    console.print("  ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine.items()))
    for section in sections:
        console.print(_table(section, baseline))
    width = max((len(limit.what) for limit in limits), default=0) + 2
    for limit in limits:
        console.print(_verdict(limit, width), soft_wrap=True)


def _table(section: Section, baseline: Mapping[str, Any]) -> Table:
    table = Table(title=section.title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in (*section.rows[0].figures, f"/ {section.rival}", "baseline"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in section.rows:
        change = _change(row, section, baseline)
        table.add_row(
            row.name,
            *map(_cell, row.figures.values()),
            "" if row.ratio is None else _cell(row.ratio),
            "" if change is None else f"{change:+.1f} %",
        )
    return table


def _cell(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"


def _change(row: Row, section: Section, baseline: Mapping[str, Any]) -> float | None:
    before = baseline.get(section.name, {}).get(row.name, {}).get(f"times {section.rival}")
    return None if before is None or row.ratio is None else 100 * (row.ratio / before - 1)


def _verdict(limit: Limit, width: int) -> Text:
    bound = f"at {'least' if limit.at_least else 'most'} {limit.limit:,g} {limit.unit}"
    line = Text(f"{limit.what + ':':<{width}}{_cell(limit.value):>8} {limit.unit:<2} {bound:<20} ")
    kept = limit.kept
    return line.append("PASS" if kept else "FAIL", style="bold green" if kept else "bold red")
