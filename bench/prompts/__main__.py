"""`python -P -m bench.prompts`: a prefix that comes again, a long prompt beside four streams."""

import argparse
import asyncio
import json
import statistics
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.house import running
from bench.prompts.stream import Asking, first_s, text_times
from chassis.loop import run

_MODEL = Path(__file__).parents[2] / "models" / "smollm2-135m-instruct-q4_1.gguf"
_STREAMS = 4
_PREFIX_TOKENS, _LONG_TOKENS = 1000, 4000


@dataclass(frozen=True, slots=True)
class Finding:
    """A figure and its limit."""

    what: str
    value: float
    unit: str
    limit: float
    at_least: bool = False

    @property
    def passes(self) -> bool:
        """The limit is kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def _text(seed: int, tokens: int) -> str:
    """A prompt of about that many tokens: each number and its space is one or two."""
    return " ".join(f"word{(seed * 7919 + 31 * i) % 97}" for i in range(tokens // 3))


async def _prefix(asking: Asking, rounds: int) -> list[Finding]:
    cold, warm = [], []
    for number in range(rounds):
        prefix = _text(number + 1, _PREFIX_TOKENS)
        cold.append(await first_s(asking, prefix + " In the end"))
        warm.append(await first_s(asking, prefix + " At the beginning"))
    ratio = statistics.median(a / b for a, b in zip(cold, warm, strict=True))
    return [
        Finding("first token, cold prefix", 1e3 * statistics.median(cold), "ms", float("inf")),
        Finding("first token, the prefix again", 1e3 * statistics.median(warm), "ms", float("inf")),
        Finding("sooner", ratio, "times", 8.0, at_least=True),
    ]


async def _beside(asking: Asking) -> list[Finding]:
    alone = await first_s(asking, _text(101, _LONG_TOKENS))
    gaps: list[float] = []
    measuring = asyncio.Event()

    async def stream(number: int, running: asyncio.Barrier) -> None:
        last, waited = 0.0, False
        async for at in text_times(asking, f"Story {number}: once upon a time", 5000):
            if last and measuring.is_set():
                gaps.append(at - last)
            last = at
            if not waited:
                waited = True
                await running.wait()

    barrier = asyncio.Barrier(_STREAMS + 1)
    tasks = [asyncio.create_task(stream(i, barrier)) for i in range(_STREAMS)]
    await barrier.wait()
    measuring.set()
    beside = await first_s(asking, _text(202, _LONG_TOKENS))
    measuring.clear()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    p99 = statistics.quantiles(gaps, n=100)[98]
    return [
        Finding(f"first token of {_LONG_TOKENS} tokens, alone", alone, "s", float("inf")),
        Finding(f"the same beside {_STREAMS} streams", beside, "s", float("inf")),
        Finding("newcomer, beside / alone", beside / alone, "times", 2.2),
        Finding("p99 gap of the streams meanwhile", 1e3 * p99, "ms", 500.0),
        Finding("longest gap", 1e3 * max(gaps), "ms", float("inf")),
    ]


async def measure(rounds: int) -> list[Finding]:
    """Both, in a house of their own."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="cohabit-bench-")))
        model = {
            "path": str(_MODEL), "context_tokens": 6144, "places": _STREAMS + 1,
            "cache_tokens": 12288,
        }  # fmt: skip
        house = await stack.enter_async_context(
            running(folder, folder, {"smollm2": model}, permits=_STREAMS + 1)
        )
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=600.0))
        asking = Asking(client, f"http://127.0.0.1:{house.port}", "smollm2")
        await first_s(asking, "Say hi")
        return [*await _prefix(asking, rounds), *await _beside(asking)]


def _show(findings: list[Finding], console: Console) -> None:
    table = Table(title="long prompts", title_justify="left", box=box.SIMPLE, pad_edge=False)
    for heading in ("", "median", "", "limit", ""):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for one in findings:
        judged = one.limit != float("inf")
        limit = f"{'at least' if one.at_least else 'at most'} {one.limit:g}" if judged else ""
        word = Text("PASS", "bold green") if one.passes else Text("FAIL", "bold red")
        table.add_row(one.what, f"{one.value:.1f}", one.unit, limit, word if judged else Text(""))
    console.print(table)


def main() -> int:
    """0: every limit is kept. 1: one is missed."""
    parser = argparse.ArgumentParser(prog="bench.prompts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of the repeated prefix")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: list[Finding] = []

    async def whole() -> None:
        found.extend(await measure(max(2, arguments.rounds)))

    run(whole())
    if arguments.json:
        told = [asdict(one) | {"passes": one.passes} for one in found]
        print(json.dumps([{k: v for k, v in row.items() if v != float("inf")} for row in told]))
    else:
        _show(found, Console())
    return 0 if all(one.passes for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
