"""Requests of the diffusion engine that end before their time: cancelled, revoked, not read."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
import pytest_asyncio

from chassis.errors import Reason
from chassis.status import fault_of
from hosting.engine_side import EngineProcess
from services.diffusion import engine_main, generation
from services.diffusion.engine_servicer import EngineServicer
from services.diffusion.loaded import LoadedModel
from services.diffusion.painter import Painted
from services.diffusion.values import File
from tests.diffusion_kit import DEADLINE_S, Engine, asking, engine, fresh, spec_of_tiny
from tests.hosting_world import drained
from tests.tiny_diffusion import TinyDiffusion, make_tiny_diffusion

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TinyDiffusion:
    return make_tiny_diffusion(tmp_path_factory.mktemp("tiny"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tiny(
    made: TinyDiffusion, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    async with engine(spec_of_tiny(made), tmp_path_factory.mktemp("run")) as running:
        yield running


@pytest.fixture
def painting(tiny: Engine, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set while the native library is at work."""
    busy, paint = threading.Event(), tiny.model.painter.paint

    def spied(*args: Any) -> Painted:
        busy.set()
        try:
            return paint(*args)
        finally:
            busy.clear()

    monkeypatch.setattr(tiny.model.painter, "paint", spied)
    return busy


async def test_a_cancelled_picture_holds_its_permit_until_the_device_is_free(
    tiny: Engine, painting: threading.Event
) -> None:
    before = await tiny.generate(fresh())
    stream = tiny.call(fresh(steps=8, width_px=256, height_px=256))
    async for response in stream:
        if response.HasField("progress") and response.progress.done_steps:
            break
    stream.cancel()
    assert painting.is_set()
    await tiny.idle()
    assert not painting.is_set()
    assert (await tiny.generate(fresh())).data == before.data


async def test_a_revoked_permit_ends_its_stream_with_the_reason(tiny: Engine) -> None:
    stream = tiny.call(fresh(steps=8, width_px=256, height_px=256), permit="taken back")
    async for response in stream:
        if response.HasField("progress") and response.progress.done_steps:
            break
    revoking = asyncio.create_task(
        tiny.process.permits.revoke("taken back", only_if_not_started=False)
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in stream:
            pass
    assert fault_of(caught.value, "model").reason is Reason.PERMIT_REVOKED
    async with asyncio.timeout(DEADLINE_S):
        await revoking
    assert not tiny.process.permits.running


async def test_a_reader_that_stops_reading_is_cut_off(
    made: TinyDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(process: EngineProcess, model: LoadedModel) -> EngineServicer:
        return EngineServicer(process, model, read_within_s=1.0)

    monkeypatch.setattr(engine_main, "EngineServicer", hasty)
    async with engine(spec_of_tiny(made), tmp_path) as running:
        await running.generate(asking())
        [key] = running.model.cache._kept
        running.model.cache.keep(
            key, File(bytes(40 << 20), "image/png")
        )  # more than any buffer holds
        stream, began_s = running.call(asking()), asyncio.get_running_loop().time()
        await stream.read()
        while asyncio.get_running_loop().time() < began_s + 1.5:  # others are served meanwhile
            await running.generate(fresh())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await drained(stream)
        assert fault_of(caught.value, "model").reason is Reason.SLOW_READER


@pytest.mark.parametrize("others_s", [DEADLINE_S, 0.0])
async def test_pictures_of_others_are_read_before_a_cancel_ends_the_process(
    made: TinyDiffusion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others_s: float
) -> None:
    monkeypatch.setattr(generation, "_READ_OUT_S", others_s)
    renewed = asyncio.Event()

    def renew() -> NoReturn:
        renewed.set()
        raise InterruptedError

    async with engine(spec_of_tiny(made), tmp_path) as running:
        running.model.renew, running.model.reload_s = renew, 0.0
        await running.generate(asking())
        [key] = running.model.cache._kept
        large = File(bytes(40 << 20), "image/png")  # more than any buffer holds
        running.model.cache.keep(key, large)
        other = running.call(asking())
        await other.read()
        async with asyncio.timeout(DEADLINE_S):
            while not running.model.delivering:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.005)
            cancelled = running.call(fresh(steps=4, width_px=256, height_px=256))
            async for response in cancelled:
                if response.HasField("progress") and response.progress.done_steps:
                    break
            cancelled.cancel()
            if others_s:
                images = [one.image for one in await drained(other) if one.HasField("image")]
                assert [image.image.data for image in images] == [large.data]
            await renewed.wait()
            assert bool(running.model.delivering) == (others_s == 0)
            await asyncio.wrap_future(running.model.thread.submit(int))  # it ends after all
        other.cancel()
