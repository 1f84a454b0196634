"""The bare decode loop, in a process of its own so that it is alike to the house's engine.

    python -P -m bench.bare        one JSON object a line, in and out
    ← {"model": {…ModelConfig…}, "models_dir": "…"}      → {"threads": 1}
    ← {"model": "…", "text": "…", "tokens": 8}           → {"first_ms": …, "tokens_per_s": …}

Time is taken inside: nothing of this protocol is part of a figure.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.clock import StopWatch
from bench.figures import Shot
from bench.question import Question
from chassis.loop import run
from chassis.process import child_env, die_with_parent
from services.llm.config import ModelConfig
from services.llm.engine import Engine
from services.llm.engine_llama import LlamaEngine

_LOAD_S = 60.0
_ANSWER_S = 60.0


class Bare:
    """The parent's side: a way of asking."""

    name = "bare decode loop"

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.threads = 0

    async def ask(self, question: Question) -> Shot:
        """One answer."""
        return Shot(**await self.tell(asdict(question), _ANSWER_S))

    async def tell(self, message: Mapping[str, Any], within_s: float) -> dict[str, Any]:
        """One line there and one back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        async with asyncio.timeout(within_s):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the bare decode loop ended; what it printed says why")
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def bare_loop(model: Mapping[str, Any], models_dir: Path) -> AsyncIterator[Bare]:
    """A process with `model` loaded, until the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "bench.bare",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_env(),
    )  # fmt: skip
    try:
        bare = Bare(process)
        birth = {"model": dict(model), "models_dir": str(models_dir)}
        bare.threads = (await bare.tell(birth, _LOAD_S))["threads"]
        yield bare
    finally:
        process.kill()
        await process.wait()


async def measure(engine: Engine, question: Question) -> Shot:
    """One answer of `engine`, template and tokeniser included."""
    watch, tokens = StopWatch(), 0
    async with aclosing(engine.generate(question.conversation, question.params)) as chunks:
        async for chunk in chunks:
            if chunk.text:
                watch.text()
            if chunk.finish is not None:
                watch.finish()
                tokens = chunk.finish.usage.completion_tokens
    return watch.shot(tokens)


async def _live() -> None:
    birth = json.loads(await asyncio.to_thread(sys.stdin.readline))
    spec = ModelConfig.model_validate(birth["model"]).spec(Path(birth["models_dir"]))
    engine = LlamaEngine(spec)
    engine.load(lambda _: None)
    print(json.dumps({"threads": spec.threads}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        shot = await measure(engine, Question(**json.loads(line)))
        print(json.dumps(shot._asdict()), flush=True)
    engine.close()


if __name__ == "__main__":
    die_with_parent()
    run(_live())
