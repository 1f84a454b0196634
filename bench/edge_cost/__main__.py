"""`python -P -m bench.edge_cost`: what the edge costs per chat request, beside LiteLLM's proxy."""

import argparse
import json
import os
import statistics
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.edge_cost.asks import ASKS, Ask
from bench.edge_cost.load import burst
from bench.edge_cost.null_model import null_model
from bench.edge_cost.proxies import Proxy, edge, litellm
from bench.edge_cost.report import Cost, Row, cost_of, show
from chassis.loop import run

_ROOT = Path(__file__).parents[2]
_PROGRAM = _ROOT / ".venv-litellm" / "bin" / "litellm"


async def measure(program: Path, arguments: argparse.Namespace) -> list[Row]:
    """Each kind of request at each number of workers. Raises RuntimeError."""
    rows: list[Row] = []
    for workers in arguments.workers:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="cohabit-bench-")))
            model = await stack.enter_async_context(null_model(folder))
            ours = await stack.enter_async_context(edge(folder, model, workers))
            rival = await stack.enter_async_context(litellm(program, folder, model, workers))
            rows += [await _row(ask, workers, ours, rival, arguments) for ask in ASKS]
    return rows


async def _row(
    ask: Ask, workers: int, ours: Proxy, rival: Proxy, arguments: argparse.Namespace
) -> Row:
    """Both in turns, each first as often as the other; the first round warms up."""
    found: dict[Proxy, list[Cost]] = {ours: [], rival: []}
    for number in range(-1, arguments.rounds):
        for proxy in (ours, rival) if number % 2 else (rival, ours):
            count = max(10, round(arguments.requests * ask.share))
            cost = await _cost(proxy, ask, count)
            if number >= 0:
                found[proxy].append(cost)
    pairs = zip(found[ours], found[rival], strict=True)
    ratio = statistics.median(mine.cpu_ms / its.cpu_ms for mine, its in pairs)
    return Row(ask.name, workers, cost_of(found[ours]), cost_of(found[rival]), ratio)


async def _cost(proxy: Proxy, ask: Ask, count: int) -> Cost:
    before_ms = proxy.cpu_ms()
    ran = await burst(proxy.port, ask, count)
    spent_ms = proxy.cpu_ms() - before_ms
    hundredths = statistics.quantiles(ran.each_ms, n=100)
    return Cost(spent_ms / count, hundredths[49], hundredths[98], count / ran.wall_s)


def main() -> int:
    """0: at most a fifth. 1: more. 2: it cannot be measured."""
    parser = argparse.ArgumentParser(prog="bench.edge_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=400, help="in each round, by all clients")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    program = Path(os.environ.get("COHABIT_LITELLM", _PROGRAM))
    if not program.exists():
        sys.stderr.write(f"{program} is not there; `make bench-edge` installs it.\n")
        return 2
    found: list[Row] = []

    async def whole() -> None:
        found.extend(await measure(program, arguments))

    try:
        run(whole())
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if arguments.json:
        print(json.dumps([row.as_json() for row in found], indent=2))
    else:
        show(found, Console())
    return 0 if all(row.passes for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
