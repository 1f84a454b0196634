"""`python -P -m bench.matte`: our foreground estimation beside pymatting's, and a contact sheet."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from bench.matte.figures import (
    FEWEST,
    LEAST_SPEED,
    MOST_ERROR,
    Compared,
    Shot,
    median_ms,
)
from bench.matte.pictures import COMPOSITES, KINDS, composites, with_coarse_matte
from bench.matte.sheet import draw_sheet
from bench.matte.solvers import OURS, THEIRS, compile_both, in_turn, solved

_ERRORS = ("mean", "MSE", "SAD", "backgr.")
_SHEET = Path("build/bench-matte.png")


def compare(size: int, rounds: int) -> Compared:
    """All composites of a size, by both in turn; at last each once under a coarse matte."""
    exact: dict[str, list[Shot]] = {OURS.name: [], THEIRS.name: []}
    coarse: dict[str, list[Shot]] = {OURS.name: [], THEIRS.name: []}
    for number in range(rounds):
        for at, picture in enumerate(composites(size)):
            for rival in in_turn(number + at):
                exact[rival.name].append(solved(rival, picture)[0])
                if number == 0:
                    coarse[rival.name].append(solved(rival, with_coarse_matte(picture))[0])
    return Compared(
        size, exact[OURS.name], exact[THEIRS.name], coarse[OURS.name], coarse[THEIRS.name]
    )


def as_json(found: Sequence[Compared]) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "machine": _machine(),
        "limits": {"error_ratio": MOST_ERROR, "speed_ratio": LEAST_SPEED, "composites": FEWEST},
        "sizes": [
            {
                "size": one.size,
                "solved": len(one.ours),
                "error_ratios": one.error_ratios._asdict(),
                "error_ratio_by_kind": one.error_ratio_by_kind,
                "worst_error_ratio": one.worst_error_ratio,
                "coarse_error_ratio": one.coarse_error_ratio,
                "speed_ratio": one.speed_ratio,
                "cpu_ratio": one.cpu_ratio,
                "ours_ms": median_ms(one.ours),
                "theirs_ms": median_ms(one.theirs),
                "passes": one.passes,
            }
            for one in found
        ],
    }


def show(found: Sequence[Compared], console: Console) -> None:
    """Two tables and the verdicts."""
    console.print(
        "  ".join(f"{name.replace('_', ' ')} {value}" for name, value in _machine().items())
    )
    errors = _table("errors, ours / pymatting", ("size", *_ERRORS, *KINDS, "worst", "coarse"))
    speeds = _table("speed", ("size", "times theirs", "per CPU s", "ours, ms", "theirs, ms", ""))
    for one in found:
        by_kind = one.error_ratio_by_kind.values()
        ratios = (*one.error_ratios, *by_kind, one.worst_error_ratio, one.coarse_error_ratio)
        errors.add_row(f"{one.size}²", *(f"{ratio:.3f}" for ratio in ratios))
        numbers = (one.speed_ratio, one.cpu_ratio, median_ms(one.ours), median_ms(one.theirs))
        verdict = "[bold green]PASS" if one.passes else "[bold red]FAIL"
        speeds.add_row(f"{one.size}²", *(f"{number:.1f}" for number in numbers), verdict)
    console.print(errors)
    console.print(speeds)
    console.print(
        f"{len(found[0].ours)} solved of each size. Limits: mean error {MOST_ERROR:.2f} and speed "
        f"{LEAST_SPEED} times theirs, {FEWEST} composites."
    )


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE, pad_edge=False, collapse_padding=True
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        **{name: version(name) for name in ("numba", "numpy", "pymatting")},
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.matte", description=(__doc__ or "").strip("`"))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=1, help=f"of {COMPOSITES} composites each")
    parser.add_argument("--out", type=Path, default=_SHEET, help="the contact sheet, PNG")
    return parser.parse_args()


def main() -> int:
    """0: all limits are kept. 1: one is missed."""
    arguments = _arguments()
    compile_both()
    found = [compare(size, max(1, arguments.rounds)) for size in arguments.sizes]
    draw_sheet(arguments.out)
    if arguments.json:
        print(json.dumps(as_json(found), indent=2))
    else:
        show(found, Console())
        print(f"contact sheet: {arguments.out}")
    return 0 if all(one.passes for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
