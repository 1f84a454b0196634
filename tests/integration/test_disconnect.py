"""A client that goes away frees its permit and its place within 100 ms, wherever it was."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2
from tests.integration.house import House, running, until

pytestmark = pytest.mark.model

LIMIT_S = 0.1
ENDLESS: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h"), scheduler={"permits": 2}) as house:
        yield house


def body(model: str, text: str = "hello", **more: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


@dataclass
class Line:
    """A stream whose headers have come, and when its client hung up."""

    lines: AsyncIterator[str]
    hung_up: float = 0.0


@asynccontextmanager
async def talking(house: House, request: dict[str, object]) -> AsyncIterator[Line]:
    """Leaving the block hangs up."""
    async with (
        httpx.AsyncClient(base_url=house.url, timeout=60) as client,
        client.stream("POST", "/v1/chat/completions", json=request) as response,
    ):
        assert response.status_code == 200
        line = Line(response.aiter_lines())
        yield line
        line.hung_up = time.monotonic()


async def first_text(line: Line) -> None:
    while text := await anext(line.lines) or "-":
        if '"content":"' in text and '"content":""' not in text:
            return


async def freed_within(house: House, running: int, waiting: int, since: float = 0.0) -> float:
    """Seconds from `since` until `running` permits are out, at the scheduler and at the engines,
    and `waiting` requests wait. Connecting to look is part of it."""
    async with house.scheduler() as stub:

        async def free() -> bool:
            status = (await stub.GetStatus(scheduler_pb2.GetStatusRequest())).status
            models = (await stub.ListModels(scheduler_pb2.ListModelsRequest())).models
            at_engines = [p for m in models for i in m.instances for p in i.running_permit_ids]
            queued = sum(tier.waiting for tier in status.tiers)
            return (status.permits_in_use, len(at_engines), queued) == (running, running, waiting)

        await until(free, 5, f"{running} running and {waiting} waiting")
    return time.monotonic() - since


async def warm(house: House, model: str) -> None:
    async with httpx.AsyncClient(base_url=house.url, timeout=60) as client:
        answer = await client.post("/v1/chat/completions", json=body(model, max_tokens=1))
        assert answer.status_code == 200
    await freed_within(house, 0, 0)


async def test_in_decode(house: House) -> None:
    await warm(house, "tiny")
    async with talking(house, body("tiny", **ENDLESS)) as line:
        await first_text(line)
    assert await freed_within(house, 0, 0, line.hung_up) < LIMIT_S


async def test_in_decode_without_streaming(house: House) -> None:
    await warm(house, "smollm2")
    async with httpx.AsyncClient(base_url=house.url, timeout=60) as client:
        request = body("smollm2", max_tokens=1500, ignore_eos=True)
        call = asyncio.create_task(client.post("/v1/chat/completions", json=request))
        await freed_within(house, 1, 0)
        hung_up = time.monotonic()
        call.cancel()
        await asyncio.wait([call])
        assert await freed_within(house, 0, 0, hung_up) < LIMIT_S


async def test_while_queued(house: House) -> None:
    await warm(house, "smollm2")
    async with (
        talking(house, body("smollm2", **ENDLESS)) as one,
        talking(house, body("smollm2", **ENDLESS)) as two,
    ):
        await asyncio.gather(first_text(one), first_text(two))
        # Its headers come with the keepalive.
        async with talking(house, body("smollm2", **ENDLESS)) as three:
            await freed_within(house, 2, 1)
        assert await freed_within(house, 2, 0, three.hung_up) < LIMIT_S
    assert await freed_within(house, 0, 0, one.hung_up) < LIMIT_S


async def test_while_the_model_loads(house: House) -> None:
    async with house.scheduler() as stub:
        await stub.UnloadModel(scheduler_pb2.UnloadModelRequest(model="smollm2"))

        async def loading() -> bool:
            models = (await stub.ListModels(scheduler_pb2.ListModelsRequest())).models
            states = {model.key: model.state for model in models}
            return states["smollm2"] == models_pb2.MODEL_STATE_LOADING

        async with talking(house, body("smollm2", **ENDLESS)) as line:
            assert await loading(), "the headers came with a keepalive, before the model was there"
        assert await freed_within(house, 0, 0, line.hung_up) < LIMIT_S


async def test_in_prefill_of_a_long_prompt(house: House) -> None:
    await warm(house, "smollm2")
    long = body("smollm2", "word " * 1500, **ENDLESS | {"max_tokens": 300})
    async with talking(house, long) as line:
        await freed_within(house, 1, 0)  # its prefill runs: over four seconds on one core
    assert await freed_within(house, 0, 0, line.hung_up) < LIMIT_S
    # The engine is really free: somebody else's answer comes at once, not after the prefill.
    async with talking(house, body("smollm2", max_tokens=2, stream=True)) as other:
        await first_text(other)
    assert time.monotonic() - line.hung_up < 1.5
