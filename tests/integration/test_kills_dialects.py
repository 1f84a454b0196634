"""SIGKILL for an engine that answers: its client is told in its own dialect, and never sees an end
that looks like one."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.rest import left_after
from tests.integration.house import House, running, until
from tests.tiny_gguf import make_tiny_gguf

TURNS = [{"role": "user", "content": "hello"}]
LONG: dict[str, Any] = {"model": "tiny", "max_tokens": 1900, "temperature": 0}
BODIES: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": LONG | {"messages": TURNS, "ignore_eos": True},
    "/v1/completions": LONG | {"prompt": "hello", "ignore_eos": True},
    "/v1/engines/old/completions": LONG | {"prompt": "hello", "ignore_eos": True},
    "/v1/responses": {
        "model": "tiny",
        "input": "hello",
        "max_output_tokens": 1900,
        "temperature": 0,
    },
    "/v1/messages": LONG | {"messages": TURNS},
}
ENDS = ("[DONE]", "message_stop", "response.completed", "response.incomplete")


ALL = 2 * len(BODIES)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """With room for all of them at once: an engine that dies again and again is not loaded soon."""
    (tmp_path / "models").mkdir()
    make_tiny_gguf(tmp_path / "models" / "slow.gguf", context=2048, layers=12, embd=256)
    model = {"path": "slow.gguf", "places": ALL, "context_tokens": 2048}
    with running(
        tmp_path,
        llm={"models": {"tiny": model}},
        scheduler={"permits": 4 * ALL},
        edge={"legacy_models": {"engines": "tiny"}},
    ) as house:
        yield house


async def test_every_client_is_told_in_its_own_words(house: House) -> None:
    async with httpx.AsyncClient(base_url=house.url, timeout=30, trust_env=False) as http:
        begun = asyncio.Barrier(len(BODIES) + 1)
        streams = [asyncio.create_task(streamed(http, path, begun)) for path in BODIES]
        wholes = [asyncio.create_task(http.post(path, json=BODIES[path])) for path in BODIES]
        async with asyncio.timeout(20):
            await begun.wait()
        await until(lambda: all_run(house), 10, "all run")
        house.process("services.llm.engine_main").kill()
        told = await asyncio.gather(*streams)
        answers = await asyncio.gather(*wholes)
    for path, lines in zip(BODIES, told, strict=True):
        check_lines(path, lines)
    for path, answer in zip(BODIES, answers, strict=True):
        assert answer.status_code == 503, (path, answer.text[:500])
        assert "engine" in answer.json()["error"]["message"]
    scheduler, broker, llm = map(house.address, ("scheduler", "broker", "llm"))
    assert await left_after(10, scheduler, broker, llm, ("tiny",)) == []


async def all_run(house: House) -> bool:
    models = await house.models()
    return sum(len(i.running_permit_ids) for i in models["tiny"].instances) == ALL


async def streamed(http: httpx.AsyncClient, path: str, begun: asyncio.Barrier) -> list[str]:
    """All lines of a stream; `begun` is waited for when there are some."""
    lines = []
    async with http.stream("POST", path, json=BODIES[path] | {"stream": True}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            lines.append(line)
            if len(lines) == 12:
                await begun.wait()
    return lines


def check_lines(path: str, lines: list[str]) -> None:
    """The last event is the error, and none is an end."""
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert not [one for one in data if any(end in one for end in ENDS)], (path, data[-2:])
    last = json.loads(data[-1])
    error = last.get("response", last).get("error") or last
    assert "engine" in error["message"], (path, last)
    named = [line for line in lines if line.startswith("event: ")]
    if path in ("/v1/messages", "/v1/responses"):
        assert named[-1] in ("event: error", "event: response.failed"), named[-3:]
    else:
        assert named == []
