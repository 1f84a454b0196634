"""The figures on a page: a table and two verdicts for people, JSON for machines."""

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.figures import Figures, Spread

MOST_ADDED_MS = 3.0
MOST_LOST_PERCENT = 5.0


@dataclass(frozen=True, slots=True)
class Report:
    """One run. `first` is of the tiny model, `speed` of the real one; both by way of asking."""

    machine: Mapping[str, Any]
    bare: str
    judged: str
    """The way that the limits hold for."""
    first: Mapping[str, Figures]
    speed: Mapping[str, Figures]

    @property
    def added_ms(self) -> float:
        """What the house adds to the first token."""
        return self.first[self.judged].added_ms.median

    @property
    def lost_percent(self) -> float:
        """What the house takes of the throughput."""
        return self.speed[self.judged].lost_percent.median

    @property
    def passes(self) -> bool:
        """Both limits are kept."""
        return self.added_ms <= MOST_ADDED_MS and self.lost_percent <= MOST_LOST_PERCENT


def machine(threads: int, rounds: Mapping[str, int]) -> dict[str, Any]:
    """What the figures depend on."""
    packages = ("grpcio", "llama-cpp-python", "uvloop", "uvicorn")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "decode_threads": threads,
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "rounds": dict(rounds),
    }


def as_json(report: Report) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "machine": dict(report.machine),
        "first_token": {name: _first(figures) for name, figures in report.first.items()},
        "throughput": {name: _speed(figures) for name, figures in report.speed.items()},
        "added_ms": {"value": round(report.added_ms, 3), "limit": MOST_ADDED_MS},
        "lost_percent": {"value": round(report.lost_percent, 2), "limit": MOST_LOST_PERCENT},
        "passes": report.passes,
    }


def _first(figures: Figures) -> dict[str, Any]:
    return {
        "ms": _rounded(figures.first_ms),
        "added_ms": _rounded(figures.added_ms),
        "times_bare": round(figures.first_times_bare, 3),
    }


def _speed(figures: Figures) -> dict[str, Any]:
    return {
        "tokens_per_s": _rounded(figures.tokens_per_s),
        "lost_percent": _rounded(figures.lost_percent),
        "times_bare": round(figures.speed_times_bare, 4),
    }


def _rounded(spread: Spread) -> dict[str, float]:
    return {name: round(value, 3) for name, value in asdict(spread).items()}


def show(report: Report, baseline: Mapping[str, Any], console: Console) -> None:
    """The table and the verdicts; `baseline` is an earlier run's JSON, or empty."""
    facts = {k: v for k, v in report.machine.items() if k != "rounds"}
    console.print("  ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    for title, rows in (("first token, ms", _first_rows), ("throughput, tokens/s", _speed_rows)):
        console.print(_table(title, rows(report, baseline), report))
    console.print(_verdict("added to the first token", report.added_ms, MOST_ADDED_MS, "ms"))
    console.print(_verdict("throughput lost", report.lost_percent, MOST_LOST_PERCENT, "%"))


_Row = tuple[str, ...]


def _first_rows(report: Report, baseline: Mapping[str, Any]) -> list[_Row]:
    rows = []
    for name, f in report.first.items():
        added = ("", "") if name == report.bare else _cells(f.added_ms)
        change = _change(f.first_times_bare, baseline, "first_token", name)
        rows.append((name, *_cells(f.first_ms), *added, *change))
    return rows


def _speed_rows(report: Report, baseline: Mapping[str, Any]) -> list[_Row]:
    rows = []
    for name, f in report.speed.items():
        lost = ("", "") if name == report.bare else _cells(f.lost_percent)
        change = _change(f.speed_times_bare, baseline, "throughput", name)
        rows.append((name, *_cells(f.tokens_per_s), *lost, *change))
    return rows


def _cells(spread: Spread) -> _Row:
    """The median and the interquartile range."""
    return (f"{spread.median:.2f}", f"{spread.high - spread.low:.2f}")


def _change(now: float, baseline: Mapping[str, Any], what: str, name: str) -> _Row:
    """The ratio to the bare loop, and how that changed against the baseline."""
    before = baseline.get(what, {}).get(name, {}).get("times_bare")
    return (f"{now:.3f}", "" if before is None else f"{100 * (now / before - 1):+.1f} %")


def _table(title: str, rows: list[_Row], report: Report) -> Table:
    first = title.startswith("first")
    rounds = report.machine["rounds"]["first_token" if first else "throughput"]
    table = Table(
        title=f"{title}, {rounds} rounds", title_justify="left", box=box.SIMPLE, pad_edge=False
    )
    table.add_column("", no_wrap=True)
    more = ("added", "IQR") if first else ("lost, %", "IQR")
    for heading in ("median", "IQR", *more, "/ bare", "baseline"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _verdict(what: str, value: float, limit: float, unit: str) -> Text:
    kept = value <= limit
    line = Text(f"{what + ':':<26}{value:6.2f} {unit:<3} limit {limit:g} {unit:<3} ")
    return line.append("PASS" if kept else "FAIL", style="bold green" if kept else "bold red")
