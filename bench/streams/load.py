"""Many streams at once, through one HTTP client: how many tokens a second come out together."""

import asyncio
import json
import time
from dataclasses import dataclass

import httpx

_ANSWER_S = 600.0
_SUBJECTS = (
    "a lighthouse keeper who finds a strange machine",
    "how a bicycle stays upright while it is moving",
    "baking a simple loaf of bread at home",
    "the city of Lisbon, for somebody who has never been there",
    "the main differences between trains and ships",
    "the sea and the moon",
    "two families of Verona that hate each other",
    "learning how to program",
)


@dataclass(frozen=True, slots=True)
class Load:
    """`streams` answers of exactly `tokens` each."""

    streams: int
    tokens: int
    round: int
    """Makes the prompts of one round differ from those of the others."""


async def tokens_per_s(client: httpx.AsyncClient, url: str, model: str, load: Load) -> float:
    """All tokens over the time from the first request to the last event. Raises RuntimeError."""
    began_s = time.perf_counter()
    async with asyncio.timeout(_ANSWER_S), asyncio.TaskGroup() as group:
        answers = [
            group.create_task(_answer(client, url, model, load, i)) for i in range(load.streams)
        ]
    return sum(task.result() for task in answers) / (time.perf_counter() - began_s)


async def _answer(client: httpx.AsyncClient, url: str, model: str, load: Load, number: int) -> int:
    subject = _SUBJECTS[number % len(_SUBJECTS)]
    body = {
        "model": model,
        "messages": [
            {"role": "user", "content": f"Number {load.round}.{number}: tell me about {subject}."}
        ],
        "max_tokens": load.tokens,
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "seed": load.round * 100 + number,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    told = 0
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"{url} answered {answer.status_code}: {await answer.aread()!r}")
        async for line in answer.aiter_lines():
            if '"usage":{' in line:
                told = json.loads(line.removeprefix("data: "))["usage"]["completion_tokens"]
    if told != load.tokens:
        raise RuntimeError(f"{url} answered {told} tokens instead of {load.tokens}")
    return told
