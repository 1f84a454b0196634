"""`python -P -m bench.removal`: how many pictures a second lose their background, beside rembg."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.house import running
from bench.removal.figures import Compared, Shot
from bench.removal.pictures import write_photographs
from bench.removal.report import as_json, show
from bench.removal.ways import Crew, Way, processes, through_house
from chassis.loop import run

_MODEL = Path(__file__).parents[2] / "models" / "u2netp.onnx"
_PLAIN_RATIO, _MATTING_RATIO = 0.8, 1.0

_PLAIN_REPEATS = 2
"""Of all pictures in a round: how a round begins and ends is no throughput."""

_CORES = len(os.sched_getaffinity(0))
_ENGINE, _HOUSE = "cohabit, its pipeline", "cohabit, a house over gRPC"
_OURS = {_ENGINE: Crew("cohabit", 1, 2, _CORES)}
_PLAIN = {
    "rembg, one thread": Crew("rembg", 1, 1, 0),
    "rembg, two threads": Crew("rembg", 1, 2, 0),
    "rembg, two processes": Crew("rembg", 2, 1, 1),
}
# Two threads of one process would end it: numba's default threads cannot be shared.
_MATTING = {
    "rembg with matting": Crew("matting", 1, 1, 0),
    "rembg with matting, two processes": Crew("matting", 2, 1, 1),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared, and for how long."""

    sides_px: Sequence[int]
    rounds: int
    matting_rounds: int
    kind: str


async def compare(plan: Plan, folder: Path) -> list[Compared]:
    """All sizes, plain and with its alpha matting. Raises RuntimeError where a way fails."""
    async with AsyncExitStack() as stack:
        ways = await _all_ways(plan, folder, stack)
        found = []
        for side_px in plan.sides_px:
            paths = write_photographs(folder, side_px)
            size = f"{side_px} px, {plan.kind}"
            longer = paths * _PLAIN_REPEATS
            shots = await _rounds(ways, (_ENGINE, _HOUSE, *_PLAIN), longer, plan.rounds)
            found.append(_compared(f"plain rembg, {size}", _PLAIN_RATIO, shots))
            shots = await _rounds(ways, (_ENGINE, _HOUSE, *_MATTING), paths, plan.matting_rounds)
            found.append(_compared(f"its alpha matting, {size}", _MATTING_RATIO, shots))
        return [one for one in found if one.theirs]


async def _all_ways(plan: Plan, folder: Path, stack: AsyncExitStack) -> dict[str, Way]:
    """Loaded, and warm: each has cut out one small picture per process."""
    env = {"U2NET_HOME": str(_home(folder))}
    ways: dict[str, Way] = {}
    crews = _OURS | _PLAIN | (_MATTING if plan.matting_rounds else {})
    for name, crew in crews.items():
        ways[name] = await stack.enter_async_context(processes(crew, plan.kind, _MODEL, env))
    matte = {"models": {"u2netp": {"path": str(_MODEL)}}}
    house = await stack.enter_async_context(running(folder, folder, {}, others={"matte": matte}))
    address = house.address("matte")
    ways[_HOUSE] = await stack.enter_async_context(through_house(address, plan.kind))
    small = write_photographs(folder, 64)[:2]
    for way in ways.values():
        await way.cut(small)
    return ways


def _home(folder: Path) -> Path:
    """Where rembg finds the network, without a network."""
    home = folder / "rembg"
    home.mkdir()
    (home / _MODEL.name).symlink_to(_MODEL)
    return home


async def _rounds(
    ways: Mapping[str, Way], names: Sequence[str], paths: Sequence[Path], rounds: int
) -> dict[str, list[Shot]]:
    """All pictures by each way in turn, each first as often as the others."""
    shots: dict[str, list[Shot]] = {name: [] for name in names} if rounds else {}
    for number in range(rounds):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            shots[name].append(await ways[name].cut(paths))
    return shots


def _compared(title: str, least_ratio: float, shots: Mapping[str, Sequence[Shot]]) -> Compared:
    ours = {name: mine for name, mine in shots.items() if name in (_ENGINE, _HOUSE)}
    theirs = {name: its for name, its in shots.items() if name not in ours}
    return Compared(title, least_ratio, ours, theirs)


def _plan() -> tuple[Plan, bool]:
    parser = argparse.ArgumentParser(prog="bench.removal", description=(__doc__ or "").strip("`"))
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024], help="longer sides")
    parser.add_argument("--rounds", type=int, default=5, help="against plain rembg")
    parser.add_argument("--matting-rounds", type=int, default=1, help="0: leave it out")
    parser.add_argument("--format", choices=("webp", "png"), default="webp")
    told = parser.parse_args()
    plan = Plan(told.sizes, max(1, told.rounds), max(0, told.matting_rounds), told.format)
    return plan, bool(told.json)


def main() -> int:
    """0: all limits are kept. 1: one is missed."""
    plan, wants_json = _plan()
    found: list[Compared] = []

    async def whole() -> None:
        with TemporaryDirectory(prefix="cohabit-bench-") as folder:
            found.extend(await compare(plan, Path(folder)))

    run(whole())
    if wants_json:
        print(json.dumps(as_json(found), indent=2))
    else:
        show(found, Console())
    return 0 if all(one.all_pass for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
