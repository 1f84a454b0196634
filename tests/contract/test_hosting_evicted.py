"""A model that leaves its device under a request, as HTTP clients see it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason
from tests.edge_kit import CHAT, House, opened, text

EVICTED = Fault(Reason.MODEL_EVICTED, "The model had to leave.", retry_after_s=1.0)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        yield house


@pytest.mark.parametrize("stream", [False, True])
async def test_before_the_first_byte_it_is_503_and_not_sent_again(
    house: House, stream: bool
) -> None:
    async def evicts(_request: Any, context: Any) -> AsyncIterator[Any]:
        await context.send_initial_metadata(((TAKEN_IN, "1"),))
        raise EVICTED
        yield

    house.peers.generate = evicts
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "stream": stream})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "model_evicted"
    assert answer.json()["error"]["message"] == "The model had to leave."
    assert len(house.peers.generates) == 1


async def test_after_it_it_is_an_error_event(house: House) -> None:
    async def evicts(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield text("Hel")
        raise EVICTED

    house.peers.generate = evicts
    lines = await house.lines({**CHAT, "stream": True})
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "model_evicted"
    assert "data: [DONE]" not in lines
    assert len(house.peers.generates) == 1


async def test_what_was_not_taken_in_runs_elsewhere(house: House) -> None:
    async def refuses_once(request: Any, context: Any) -> AsyncIterator[Any]:
        if len(house.peers.generates) == 1:
            raise EVICTED
        async for message in house.peers.says_hello(request, context):
            yield message

    house.peers.generate = refuses_once
    answer = await house.http.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "Hello"
    assert len(house.peers.generates) == 2
