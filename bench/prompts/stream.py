"""One streamed answer through the edge, with the time of every event that brings text."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx


@dataclass(frozen=True, slots=True)
class Asking:
    """Where to ask, and whom."""

    client: httpx.AsyncClient
    url: str
    model: str


async def text_times(asking: Asking, prompt: str, tokens: int) -> AsyncIterator[float]:
    """When each piece of text came, in seconds of `time.perf_counter`. Raises RuntimeError."""
    body = {
        "model": asking.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0.8,
        "seed": 1, "ignore_eos": True, "stream": True,
    }  # fmt: skip
    async with asking.client.stream("POST", f"{asking.url}/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"the edge answered {answer.status_code}: {await answer.aread()!r}")
        async for line in answer.aiter_lines():
            if line.startswith("data: {") and '"text":""' not in line:
                yield time.perf_counter()


async def first_s(asking: Asking, prompt: str) -> float:
    """From asking to the first text."""
    began = time.perf_counter()
    async for at in text_times(asking, prompt, 1):
        return at - began
    raise RuntimeError("an answer came without text")
