"""`python -P -m bench`: starts a house and bare decode loops, asks them, prints what it saw."""

import argparse
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench import report
from bench.bare import Bare, bare_loop
from bench.figures import all_paired
from bench.house import running
from bench.question import Question
from bench.report import Report
from bench.rounds import Way, take_turns
from bench.through_edge import ThroughEdge, through_edge
from bench.through_grpc import through_grpc
from chassis.loop import run
from tests.tiny_gguf import make_tiny_gguf

_ROOT = Path(__file__).parents[1]
_REAL = _ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf"
_BASELINE = Path(__file__).parent / "baseline.json"
_TEXT = "Tell me what the sea is like in winter."
_FIRST = Question("tiny", _TEXT, 8)
_SPEED = Question("smollm2", _TEXT, 128)


@dataclass(frozen=True, slots=True)
class Plan:
    """How often each question is asked."""

    first_rounds: int
    speed_rounds: int
    warm_up: int = 3

    @property
    def rounds(self) -> int:
        """All of them."""
        return self.first_rounds + self.speed_rounds + 2 * self.warm_up


async def measure(plan: Plan, done: Callable[[], None]) -> Report:
    """Both questions, by every way."""
    with TemporaryDirectory(prefix="cohabit-bench-") as name:
        folder = Path(name)
        make_tiny_gguf(folder / "tiny.gguf", context=4096)
        models = {
            "tiny": {"path": "tiny.gguf", "context_tokens": 2048, "places": 4},
            "smollm2": {"path": str(_REAL), "context_tokens": 2048, "places": 4},
        }
        async with _ways(folder, models) as (bares, others):
            found = []
            for question, rounds in ((_FIRST, plan.first_rounds), (_SPEED, plan.speed_rounds)):
                ways: list[Way] = [bares[question.model], *others]
                shots = await take_turns(
                    ways, question, rounds=rounds, warm_up=plan.warm_up, done=done
                )
                found.append(all_paired(shots, Bare.name))
            facts = report.machine(
                bares["smollm2"].threads,
                {"first_token": plan.first_rounds, "throughput": plan.speed_rounds},
            )
            return Report(facts, Bare.name, ThroughEdge.name, *found)


@asynccontextmanager
async def _ways(
    folder: Path, models: Mapping[str, Mapping[str, Any]]
) -> AsyncIterator[tuple[dict[str, Bare], Sequence[Way]]]:
    """The bare loops by model, and the ways through the house."""
    async with AsyncExitStack() as stack:
        house = await stack.enter_async_context(running(folder, folder, models))
        grpc = await stack.enter_async_context(through_grpc(house.scheduler))
        edge = await stack.enter_async_context(through_edge(house.port))
        bares = {
            key: await stack.enter_async_context(bare_loop(model, folder))
            for key, model in models.items()
        }
        yield bares, (grpc, edge)


@contextmanager
def _progress(rounds: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, drawn between rounds only: while one runs, nothing else must."""
    console = Console(stderr=True)
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, auto_refresh=False, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=rounds)
        yield lambda: bar.update(task, advance=1, refresh=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="What the house adds.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--first-rounds", type=int, default=200, help="of the tiny model")
    parser.add_argument("--speed-rounds", type=int, default=18, help="of the real model")
    parser.add_argument("--save-baseline", action="store_true", help=f"write {_BASELINE.name}")
    return parser.parse_args()


def main() -> int:
    """0: both limits are kept. 1: one is missed. 2: it cannot be measured."""
    arguments = _arguments()
    if not _REAL.exists():
        print(f"{_REAL} is not there; `make bench` fetches it.", file=sys.stderr)
        return 2
    plan = Plan(max(2, arguments.first_rounds), max(2, arguments.speed_rounds))
    found: list[Report] = []

    async def whole(done: Callable[[], None]) -> None:
        found.append(await measure(plan, done))

    with _progress(plan.rounds) as done:
        run(whole(done))
    told = report.as_json(found[0])
    if arguments.json:
        print(json.dumps(told, indent=2))
    else:
        before = json.loads(_BASELINE.read_text()) if _BASELINE.exists() else {}
        report.show(found[0], before, Console())
    if arguments.save_baseline:
        _BASELINE.write_text(json.dumps(told, indent=2) + "\n")
    return 0 if found[0].passes else 1


if __name__ == "__main__":
    raise SystemExit(main())
