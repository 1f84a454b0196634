"""The decode loop alone, in a process of its own: no gRPC, no HTTP, no scheduler.

    python -P -m bench.streams.alone MODEL THREADS STREAMS CONTEXT_TOKENS

One JSON object a line, in and out: {"streams": 4, "tokens": 96, "round": 0} gives
{"tokens_per_s": …, "outside_percent": …}.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from bench.streams.load import Load
from chassis.loop import run
from chassis.process import child_env, die_with_parent
from services.llm.engine import EngineSpec
from services.llm.engine_llama import LlamaEngine
from services.llm.values import ChatMessage, Conversation, GenerateParams, Role, SamplingParams

_ANSWER_S = 600.0


class Alone:
    """The parent's side."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

        self.outside_percent: dict[int, list[float]] = {}
        """By number of streams: the share of the time that was not spent in the native decode."""

    async def tokens_per_s(self, load: Load) -> float:
        """All tokens over the time they took. Raises RuntimeError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(load)).encode() + b"\n")
        async with asyncio.timeout(_ANSWER_S):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the decode loop ended; what it printed says why")
        told = json.loads(line)
        self.outside_percent.setdefault(load.streams, []).append(told["outside_percent"])
        return float(told["tokens_per_s"])


@asynccontextmanager
async def alone(
    model: Path, *, threads: int, streams: int, context_tokens: int
) -> AsyncIterator[Alone]:
    """A process with the model loaded, until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "bench.streams.alone",
        str(model), str(threads), str(streams), str(context_tokens),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=child_env(),
    )  # fmt: skip
    try:
        yield Alone(process)
    finally:
        process.kill()
        await process.wait()


async def _measure(engine: LlamaEngine, load: Load) -> dict[str, float]:
    began_s, inside_s = time.perf_counter(), engine.step_costs.decode_s
    async with asyncio.TaskGroup() as group:
        for number in range(load.streams):
            group.create_task(_answer(engine, load, number))
    took_s, inside_s = time.perf_counter() - began_s, engine.step_costs.decode_s - inside_s
    return {
        "tokens_per_s": load.streams * load.tokens / took_s,
        "outside_percent": 100 * (1 - inside_s / took_s),
    }


async def _answer(engine: LlamaEngine, load: Load, number: int) -> None:
    text = f"Number {load.round}.{number}: tell me about the sea and the moon."
    sampling = SamplingParams(min_p=0.05, seed=load.round * 100 + number)
    params = GenerateParams(load.tokens, sampling=sampling, ignore_eos=True)
    prompt = Conversation((ChatMessage(Role.USER, text),))
    async with aclosing(engine.generate(prompt, params)) as chunks:
        async for _ in chunks:
            pass


async def _serve(model: str, threads: int, streams: int, context_tokens: int) -> None:
    spec = EngineSpec(Path(model), context_tokens, streams, threads)
    engine = LlamaEngine(spec)
    engine.load(lambda _: None)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await _measure(engine, Load(**json.loads(line)))))
        sys.stdout.flush()
    engine.close()


if __name__ == "__main__":
    die_with_parent()
    run(_serve(sys.argv[1], *map(int, sys.argv[2:])))
