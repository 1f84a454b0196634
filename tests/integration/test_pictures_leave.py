"""A cancelled picture in a whole house: its client is free at once, and the device soon after."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import yaml

from chassis import log
from chassis.channel import open_channel
from chassis.errors import Reason
from chassis.status import fault_of
from cohabit.diffusion.v1 import diffusion_pb2, diffusion_pb2_grpc
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from tests.integration.house import House, configuration, free_port, started, until
from tests.tiny_diffusion import make_tiny_diffusion

DEADLINE_S = 90.0
FRESH = diffusion_pb2.GenerateRequest.Reuse(no_result_cache=True)
SMALL = {"base_mib": 8, "per_mpx_mib": 600}
DIFFUSION = {
    "models": {
        "painter": {
            "family": "ovis-image",
            "files": {
                "diffusion_model": "painter/dit.safetensors",
                "llm": "painter/llm.safetensors",
                "taesd": "painter/taesd.safetensors",
            },
            "defaults": {"steps": 2, "guidance": 1, "width_px": 64, "height_px": 64},
            "peak": {"condition_mib": 8, "denoise": SMALL, "decode": {"per_mpx_mib": 1950}},
        },
        "absent": {"family": "sdxl", "files": {"model": "nowhere.safetensors"}},
    }
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One permit: who runs, runs alone."""
    folder, port = tmp_path_factory.mktemp("pictures"), free_port()
    path = configuration(folder, port, scheduler={"permits": 1})
    make_tiny_diffusion(folder / "models" / "painter")
    whole = yaml.safe_load(path.read_text()) | {"diffusion": DIFFUSION}
    path.write_text(yaml.safe_dump(whole))
    with started(path, port) as running:
        yield running


@asynccontextmanager
async def painter(house: House) -> AsyncIterator["diffusion_pb2_grpc.DiffusionServiceAsyncStub"]:
    async with open_channel(house.address("diffusion")) as channel:
        yield diffusion_pb2_grpc.DiffusionServiceStub(channel)


async def picture(
    stub: "diffusion_pb2_grpc.DiffusionServiceAsyncStub", **fields: Any
) -> tuple[bytes, diffusion_pb2.GenerateResponse.Started]:
    request = diffusion_pb2.GenerateRequest(
        model="painter", prompt="a cat", seed=1, reuse=FRESH, **fields
    )
    data, applied = b"", diffusion_pb2.GenerateResponse.Started()
    async for event in stub.Generate(request, timeout=DEADLINE_S):
        if event.HasField("started"):
            applied = event.started
        if event.HasField("image"):
            data = event.image.image.data
    return data, applied


async def first_word(house: House) -> float:
    """When a short answer of another model has begun."""
    async with open_channel(house.address("llm")) as channel:
        stub: llm_pb2_grpc.LanguageModelServiceAsyncStub = llm_pb2_grpc.LanguageModelServiceStub(
            channel
        )
        request = llm_pb2.GenerateRequest(model="tiny", prompt="a b", max_tokens=1)
        async for _ in stub.Generate(request, timeout=DEADLINE_S):
            return time.monotonic()
    raise AssertionError("no answer")


async def instance(house: House) -> models_pb2.Instance:
    (found,) = (await house.models())["painter"].instances
    return found


async def test_a_picture_over_the_service_and_what_it_comes_to(house: House) -> None:
    async with painter(house) as stub:
        plan = await stub.PlanGeneration(
            diffusion_pb2.PlanGenerationRequest(model="painter", width_px=100), timeout=DEADLINE_S
        )
        assert (plan.width_px, plan.height_px, plan.size_rounded) == (112, 64, True)
        assert 8 < plan.minimum_transient_mib <= plan.preferred_transient_mib < 30
        data, applied = await picture(stub, width_px=100)
        assert (applied.width_px, applied.size_rounded, applied.vae_tiled) == (112, True, False)
        assert data[:4] == b"RIFF"
        assert await picture(stub, width_px=100) == (data, applied)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await picture(stub, width_px=10_000)
        fault = fault_of(caught.value, "diffusion")
        assert fault.reason is Reason.IMAGE_TOO_LARGE
        assert fault.metadata["max_px"] == str(4 << 20)
        for model, reason in (("absent", Reason.MODEL_FAILED), ("none", Reason.MODEL_NOT_FOUND)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.PlanGeneration(
                    diffusion_pb2.PlanGenerationRequest(model=model), timeout=DEADLINE_S
                )
            assert fault_of(caught.value, "diffusion").reason is reason
        encoding = diffusion_pb2.EncodeIdentityRequest(model="painter")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.EncodeIdentity(encoding, timeout=DEADLINE_S)
        assert fault_of(caught.value, "diffusion").reason is Reason.NOT_IMPLEMENTED
        loras = await stub.ListLoras(diffusion_pb2.ListLorasRequest(), timeout=DEADLINE_S)
        assert not loras.loras


async def test_who_waits_for_the_same_model_gets_another_turn(house: House) -> None:
    async with painter(house) as stub:
        before, _ = await picture(stub)
        for _ in range(2):
            was = await instance(house)
            request = diffusion_pb2.GenerateRequest(
                model="painter", prompt="long", width_px=512, height_px=512, steps=20
            )
            call = stub.Generate(request, timeout=DEADLINE_S)
            async for event in call:
                if event.progress.done_steps:
                    break
            waiting = [asyncio.create_task(picture(stub)) for _ in range(3)]
            call.cancel()
            assert [data for data, _ in await asyncio.gather(*waiting)] == [before] * 3
            now = await instance(house)
            assert (now.instance_id, now.lease_id) == (was.instance_id, was.lease_id)
            assert now.address != was.address


async def test_a_cancel_in_the_middle_frees_client_and_device(
    house: House,
) -> None:
    await first_word(house)  # the other model is resident: it waits for its turn alone
    async with painter(house) as stub:
        before, _ = await picture(stub)
        was = await instance(house)
        request = diffusion_pb2.GenerateRequest(
            model="painter", prompt="a cat", seed=1, width_px=512, height_px=512, steps=20
        )
        call = stub.Generate(request, timeout=DEADLINE_S)
        left_s = 0.0
        async for event in call:
            if event.progress.done_steps >= 4 and event.progress.left_ms:
                left_s = event.progress.left_ms / 1000
                break
        other = asyncio.create_task(first_word(house))

        async def waits() -> bool:
            return any(model.waiting for model in (await house.status()).models)

        await until(waits, what="the other request waits")
        cancelled = time.monotonic()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.code() and await call.read()
        free_s = time.monotonic() - cancelled
        started_s = await other - cancelled

        async def serves() -> bool:
            (found,) = (await house.models())["painter"].instances
            return found.state == models_pb2.MODEL_STATE_READY and found.address != was.address

        await until(serves, within_s=30, what="the painter serves again")
        now = await instance(house)
        assert now.instance_id == was.instance_id
        figures = {
            "client_free_ms": round(1000 * free_s),
            "other_started_ms": round(1000 * started_s),
            "work_left_ms": round(1000 * left_s),
            "reload_ms": now.load_ms,
        }
        log.get().info("a cancelled picture", **figures)
        assert free_s < 0.1
        assert started_s < min(left_s, now.load_ms / 1000), figures
        after, _ = await picture(stub)
        assert after == before
