"""The table of the removal path, for people and for machines."""

import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.removal.figures import Compared, Shot, cpu_ms, per_s


def as_json(found: Sequence[Compared]) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "machine": _machine(),
        "comparisons": [
            {
                "title": one.title,
                "least_ratio": one.least_ratio,
                "compared_with": one.best_rival,
                "ours": {
                    name: _figures(shots)
                    | {"ratios": one.ratios(name), "ratio": one.ratio(name)}
                    | {"passes": one.passes(name)}
                    for name, shots in one.ours.items()
                },
                "theirs": {name: _figures(shots) for name, shots in one.theirs.items()},
            }
            for one in found
        ],
        "passes": all(one.all_pass for one in found),
    }


def _figures(shots: Sequence[Shot]) -> dict[str, Any]:
    return {
        "pictures_per_s": per_s(shots),
        "cpu_ms": cpu_ms(shots),
        "answer_kib": shots[0].answer_bytes / shots[0].pictures / 1024,
        "rounds": len(shots),
    }


def show(found: Sequence[Compared], console: Console) -> None:
    """A table for each comparison, of medians for one picture, and the verdicts."""
    console.print("  ".join(f"{name} {value}" for name, value in _machine().items()))
    for one in found:
        console.print(_table(one))
    for one in found:
        for name in one.ours:
            console.print(_verdict(one, name))


def _table(one: Compared) -> Table:
    table = Table(title=one.title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("per s", "CPU ms", "KiB", "ratio", "rounds"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, shots in one.ours.items():
        ratios = one.ratios(name)
        spread = f"{min(ratios):.2f} - {max(ratios):.2f}"
        table.add_row(name, *_cells(shots), f"{one.ratio(name):.2f}", spread)
    for name, shots in one.theirs.items():
        compared = "compared with" if name == one.best_rival else ""
        table.add_row(name, *_cells(shots), "", compared)
    return table


def _cells(shots: Sequence[Shot]) -> tuple[str, str, str]:
    spent_ms, first = cpu_ms(shots), shots[0]
    kib = first.answer_bytes / first.pictures / 1024
    return f"{per_s(shots):.2f}", "" if spent_ms is None else f"{spent_ms:.0f}", f"{kib:.0f}"


def _verdict(one: Compared, name: str) -> Text:
    kept = one.passes(name)
    line = Text(f"{one.title}, {name}: {one.ratio(name):.2f}, at least {one.least_ratio:g} ")
    return line.append("PASS" if kept else "FAIL", style="bold green" if kept else "bold red")


def _machine() -> Mapping[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load average": round(os.getloadavg()[0], 2),
        **{name: _version(name) for name in ("onnxruntime", "rembg", "pymatting", "pillow")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
