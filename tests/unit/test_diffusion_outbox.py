"""What waits for a reader: newest progress and preview, every picture, no more than fits."""

import asyncio

import pytest

from chassis.errors import Fault, Reason
from services.diffusion.core.phases import Phase
from services.diffusion.outbox import Outbox
from services.diffusion.values import (
    Event,
    File,
    Finish,
    Image,
    Origin,
    Preview,
    Progress,
    Timings,
)


def progress(done: int) -> Progress:
    return Progress(Phase.DENOISE, 0, done, 9)


def picture(index: int, size: int = 10) -> Image:
    return Image(index, File(b"x" * size, "image/png"), 8, 8, 1, Origin.GENERATED)


async def read(outbox: Outbox) -> list[Event]:
    async with asyncio.timeout(5):
        return [event async for event in outbox.read()]


async def test_what_nobody_read_gives_way_to_what_is_newer() -> None:
    outbox = Outbox()
    for done in range(1000):
        outbox.put(progress(done))
        outbox.put(Preview(0, done, b"jpeg"))
    outbox.put(picture(0))
    outbox.put(progress(1000))
    outbox.end()
    events = await read(outbox)
    assert events == [Preview(0, 999, b"jpeg"), picture(0), progress(1000)]


async def test_a_reader_that_keeps_up_sees_everything() -> None:
    outbox, seen = Outbox(), []
    reading = asyncio.create_task(read(outbox))
    for done in range(5):
        outbox.put(progress(done))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finish = Finish(Timings())
    outbox.put(finish)
    outbox.end()
    seen = await reading
    assert seen == [*map(progress, range(5)), finish]


async def test_pictures_beyond_the_room_end_the_request() -> None:
    outbox = Outbox(room_bytes=25)
    outbox.put(picture(0))
    outbox.put(picture(1))
    with pytest.raises(Fault) as caught:
        outbox.put(picture(2))
    assert caught.value.reason is Reason.SLOW_READER


async def test_one_picture_always_has_room_and_read_ones_make_room() -> None:
    outbox = Outbox(room_bytes=25)
    events = outbox.read()
    for index in range(5):
        outbox.put(picture(index, 100))
        assert await anext(events) == picture(index, 100)


async def test_what_the_work_ended_with_is_raised_to_the_reader_at_once() -> None:
    outbox = Outbox()
    outbox.put(picture(0))
    outbox.end(Fault(Reason.MODEL_FAILED, "It broke."))
    with pytest.raises(Fault, match="It broke"):
        await anext(outbox.read())
