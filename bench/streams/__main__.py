"""`python -P -m bench.streams`: the table of aggregate tokens a second, and its verdict."""

import argparse
import json
import statistics
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from rich.console import Console

from bench.house import running
from bench.streams.alone import alone
from bench.streams.load import Load, tokens_per_s
from bench.streams.report import Row, show
from bench.streams.rival import rival
from chassis.loop import run
from services.llm.engine import default_threads

_ROOT = Path(__file__).parents[2]
_MODEL = _ROOT / "models" / "smollm2-135m-instruct-q4_1.gguf"
_STREAMS = (1, 4, 8, 16)
_CONTEXT_TOKENS = 1024

OURS, RIVAL, ALONE = "through the edge", "llama-server", "decode loop alone"
Way = Callable[[Load], Awaitable[float]]


async def measure(threads: int, rounds: int, tokens: int) -> list[Row]:
    """Every number of streams by every way, in turns."""
    most = max(_STREAMS)
    sizes = {"threads": threads, "streams": most, "context_tokens": _CONTEXT_TOKENS}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cohabit-bench-")))
        model = {
            "path": str(_MODEL), "context_tokens": _CONTEXT_TOKENS, "places": most,
            "threads": threads,
        }  # fmt: skip
        house = await stack.enter_async_context(
            running(folder, folder, {"smollm2": model}, permits=most)
        )
        url = await stack.enter_async_context(rival(_MODEL, **sizes))
        loop = await stack.enter_async_context(alone(_MODEL, **sizes))
        limits = httpx.Limits(max_connections=most, max_keepalive_connections=most)
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=None, limits=limits))
        ways: dict[str, Way] = {
            OURS: lambda load: tokens_per_s(client, house.url, "smollm2", load),
            RIVAL: lambda load: tokens_per_s(client, url, "x", load),
            ALONE: loop.tokens_per_s,
        }
        rows = [await _row(ways, streams, rounds, tokens) for streams in _STREAMS]
        return [
            replace(row, outside_percent=statistics.median(loop.outside_percent[row.streams]))
            for row in rows
        ]


async def _row(ways: dict[str, Way], streams: int, rounds: int, tokens: int) -> Row:
    found: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(-1, rounds):
        turn = number % len(names)
        for name in (*names[turn:], *names[:turn]):
            speed = await ways[name](Load(streams, tokens, streams * 1000 + number + 1))
            if number >= 0:
                found[name].append(speed)
    ratios = [a / b for a, b in zip(found[OURS], found[RIVAL], strict=True)]
    return Row(
        streams, {name: statistics.median(speeds) for name, speeds in found.items()},
        statistics.median(ratios), min(ratios), max(ratios),
    )  # fmt: skip


def main() -> int:
    """0: at least as fast as the rival at each number of streams. 1: not."""
    parser = argparse.ArgumentParser(prog="bench.streams", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: list[Row] = []

    async def whole() -> None:
        found.extend(await measure(arguments.threads, arguments.rounds, arguments.tokens))

    run(whole())
    if arguments.json:
        print(json.dumps([row.as_json() for row in found], indent=2))
    else:
        show(found, arguments.threads, arguments.rounds, Console())
    return 0 if all(row.passes for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
