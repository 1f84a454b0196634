"""`python -P -m bench.soak`: many short requests, and whether the house stays as it is.

Its stores and caches are made small, so that they are full before the warm-up is over.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bench.house import House, running
from bench.rest import left_after
from bench.soak.clients import ask, ask_each_once
from bench.soak.memory import watch
from bench.soak.mix import EMBEDDER, RANKER, WRITER
from bench.soak.report import Found, show
from bench.soak.verdict import by_role, in_all
from chassis.loop import run
from services.llm.engine import default_threads
from tests.tiny_bert import make_tiny_bert

_MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-instruct-q4_1.gguf"
_EVERY_S = 2.0
_REST_S = 20.0


def _models(folder: Path, threads: int) -> dict[str, dict[str, Any]]:
    make_tiny_bert(folder / "bert.gguf")
    make_tiny_bert(folder / "rank.gguf", pooling=gguf.PoolingType.RANK)
    return {
        WRITER: {
            "path": str(_MODEL), "context_tokens": 1024, "places": 4, "threads": threads,
            "prefix_cache_mib": 8,
        },
        EMBEDDER: {"path": "bert.gguf", "kind": "embedding"},
        RANKER: {"path": "rank.gguf", "kind": "reranker"},
    }  # fmt: skip


async def soak(minutes: float, clients: int, threads: int, progress: Progress) -> Found:
    """The whole of it. Raises ValueError when it was too short to tell."""
    with TemporaryDirectory(prefix="cohabit-soak-") as name:
        folder = Path(name)
        models = _models(folder, threads)
        async with running(folder, folder, models, edge={"stored_responses": 32}) as house:
            return await _watched(house, minutes, clients, progress)


async def _watched(house: House, minutes: float, clients: int, progress: Progress) -> Found:
    for_s = minutes * 60
    bar = progress.add_task("soaking", total=for_s)
    await ask_each_once(house.url)  # models are loaded for whom they are needed
    samples, tally = await asyncio.gather(
        watch(house.pid, _EVERY_S, for_s, lambda at_s: progress.update(bar, completed=at_s)),
        ask(house.url, clients, for_s),
    )
    scheduler, broker, llm = map(house.address, ("scheduler", "broker", "llm"))
    left = await left_after(_REST_S, scheduler, broker, llm, (WRITER,))
    return Found(minutes, tally, by_role(samples), in_all(samples), left)


def _bar() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def main() -> int:
    """0: as it should be. 1: not. 2: it was too short to tell."""
    parser = argparse.ArgumentParser(prog="bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: list[Found] = []

    async def whole() -> None:
        with _bar() as progress:
            found.append(
                await soak(arguments.minutes, arguments.clients, arguments.threads, progress)
            )

    try:
        run(whole())
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if arguments.json:
        print(json.dumps(found[0].as_json(), indent=2))
    else:
        show(found[0], Console())
    return 0 if found[0].passes else 1


if __name__ == "__main__":
    raise SystemExit(main())
