"""`python -P -m bench.scheduler [core] [grpc] [crowd]`: measures, prints, judges."""

import argparse
import gc
import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench.scheduler import measures
from bench.scheduler.report import Section, as_json, limits_of, show
from bench.scheduler.turns import GC_THRESHOLD
from chassis.loop import run

_BASELINE = Path(__file__).parent / "baseline.json"
_CROWD_STEPS = 3
_LEAST_COLUMNS = 120
_SECTIONS = ("core", "grpc", "crowd")


def _machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "gc_threshold": "/".join(map(str, GC_THRESHOLD)),
        **{name: version(name) for name in ("grpcio", "uvloop")},
    }


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, drawn between rounds only: while one runs, nothing else must."""
    console = Console(stderr=True)
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, auto_refresh=False, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=steps)
        yield lambda: bar.update(task, advance=1, refresh=True)


def _measure(arguments: argparse.Namespace) -> list[Section]:
    what = arguments.what or _SECTIONS
    steps = {"core": arguments.rounds + 1, "grpc": arguments.rounds // 2 + 1, "crowd": _CROWD_STEPS}
    found: list[Section] = []

    async def over_the_loop(done: Callable[[], None]) -> None:
        if "crowd" in what:
            found.append(await measures.crowd(arguments.crowd_rounds, done))
        if "grpc" in what:
            found.append(await measures.grpc(arguments.rounds // 2, done))

    with _progress(sum(steps[name] for name in what)) as done:
        if "core" in what:
            found.append(measures.core(arguments.rounds, done))
        run(over_the_loop(done))
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.scheduler", description="What admission costs.")
    parser.add_argument("what", nargs="*", metavar="core|grpc|crowd", help="default: all three")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--rounds", type=int, default=20, help="of core; half as many of grpc")
    parser.add_argument("--crowd-rounds", type=int, default=500, help="of each of the 256 callers")
    parser.add_argument("--save-baseline", action="store_true", help=f"write {_BASELINE.name}")
    arguments = parser.parse_args()
    if unknown := set(arguments.what) - set(_SECTIONS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(_SECTIONS)}")
    arguments.rounds = max(4, arguments.rounds)
    arguments.crowd_rounds = max(2, arguments.crowd_rounds)
    return arguments


def main() -> int:
    """0: every limit is kept. 1: one is missed."""
    arguments = _arguments()
    gc.set_threshold(*GC_THRESHOLD)
    machine = _machine()
    sections = _measure(arguments)
    baseline = json.loads(_BASELINE.read_text()) if _BASELINE.exists() else {}
    limits = limits_of(sections, baseline)
    told = as_json(machine, sections, limits)
    if arguments.json:
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        console = Console()
        console.width = max(console.width, _LEAST_COLUMNS)
        show(machine, sections, limits, baseline, console)
    if arguments.save_baseline:
        own = as_json(machine, sections, limits_of(sections, {}))
        _BASELINE.write_text(json.dumps(own, indent=2, ensure_ascii=False) + "\n")
    return 0 if told["passes"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
