"""Pictures as events over HTTP: partial ones, silence, failures, clients that leave."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from chassis.errors import Fault, Reason
from tests.edge_kit import House
from tests.picture_kit import (
    PAINTER,
    PNG,
    darkroom,
    opened_with_pictures,
    painted,
    preview,
    started,
)

GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"
BACKGROUNDS, STYLE = "/v1/images/backgrounds", "/v1/images/backgrounds/style"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened_with_pictures(tmp_path) as house:
        yield house


# Streams.


async def test_a_stream_shows_partial_pictures(house: House) -> None:
    stream = await house.openai.images.generate(
        model=PAINTER, prompt="A lake", stream=True, partial_images=2, quality="hd"
    )
    events = [event async for event in stream]
    assert [event.type for event in events] == [
        "image_generation.partial_image",
        "image_generation.partial_image",
        "image_generation.completed",
    ]
    first, second, done = events
    assert first.type == "image_generation.partial_image"
    assert second.type == "image_generation.partial_image"
    assert (first.partial_image_index, second.partial_image_index) == (0, 1)
    assert [base64.b64decode(one.b64_json)[3:] for one in (first, second)] == [b"2", b"3"]
    assert (first.output_format, first.size, first.quality) == ("jpeg", "64x128", "auto")
    assert done.type == "image_generation.completed"
    assert base64.b64decode(done.b64_json) == PNG
    assert (done.output_format, done.usage.total_tokens) == ("png", 0)
    assert (done.model_extra or {})["metrics"]["seed"] == 77
    (sent,) = darkroom(house).requests
    assert (sent.preview.every_steps, sent.preview.max_px) == (1, 512)


async def test_a_stream_of_edits_has_their_names(house: House) -> None:
    stream = await house.openai.images.edit(
        model=PAINTER,
        prompt="A lake",
        image=("a.png", PNG),
        n=2,
        stream=True,
        partial_images=1,
    )
    types = [event.type async for event in stream]
    assert types == ["image_edit.partial_image", "image_edit.completed"] * 2


async def test_a_silent_stream_says_what_is_waited_for(tmp_path: Path) -> None:
    async with opened_with_pictures(tmp_path, keepalive_s=0.05) as house:
        house.peers.admit = house.peers.queues
        body = {"model": PAINTER, "prompt": "A lake", "stream": True}
        async with house.http.stream("POST", GENERATIONS, json=body) as answer:
            async for line in answer.aiter_lines():
                if "queued behind 3" in line:
                    break
        await house.peers.seen("admit over")


async def test_a_stream_that_fails_in_the_middle_raises(house: House) -> None:
    async def fails(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield started(1)
        yield preview(3)
        raise Fault(Reason.SLOW_READER, "Read faster.")

    darkroom(house).paint = fails
    stream = await house.openai.images.generate(
        model=PAINTER, prompt="A lake", stream=True, partial_images=1
    )
    with pytest.raises(openai.APIError, match="Read faster"):
        async for _ in stream:
            pass


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_ends_without_a_picture_has_crashed(
    house: House, stream: bool
) -> None:
    async def ends(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield started(1)
        yield painted(1)

    darkroom(house).paint = ends
    body = {"model": PAINTER, "prompt": "A lake", "stream": stream}
    answer = await house.http.post(GENERATIONS, json=body)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "engine_crashed"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_its_picture(house: House, stream: bool) -> None:
    async def hangs(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield started(1)
        await asyncio.Event().wait()

    darkroom(house).paint = hangs
    body = json.dumps({"model": PAINTER, "prompt": "A lake", "stream": stream}).encode()
    _, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
    head = f"POST {GENERATIONS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await house.peers.seen("paint")
    writer.transport.abort()
    await house.peers.seen("paint over")
    await house.peers.seen("admit over")
