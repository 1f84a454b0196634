"""Another file for a model in a real house: chats finish first, a broken file changes nothing."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
import pytest

from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.models.v1 import models_pb2 as pb
from cohabit.models.v1 import models_pb2_grpc as rpc
from tests.integration.house import House, running, until
from tests.tiny_gguf import make_tiny_gguf

PHASES = pb.SwapModelResponse
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("swaps")
    swaps = folder / "models" / "swaps"
    swaps.mkdir(parents=True)
    make_tiny_gguf(swaps / "small.gguf", seed=1)
    make_tiny_gguf(swaps / "narrow.gguf", context=1024)
    make_tiny_gguf(swaps / "hollow.gguf", weights=False)  # its header is whole
    (swaps / "noise.gguf").write_bytes(b"no model at all")
    with running(folder, llm={"swap_dir": "swaps"}) as up:
        yield up


@asynccontextmanager
async def service(house: House) -> AsyncIterator["rpc.ModelServiceAsyncStub"]:
    async with open_channel(house.address("llm")) as channel:
        yield rpc.ModelServiceStub(channel)


async def swapped(house: House, path: str, key: str = "smollm2", **more: Any) -> list[Any]:
    """The steps of a swap. Raises Fault."""
    async with service(house) as stub, asyncio.timeout(WITHIN_S):
        request = pb.SwapModelRequest(key=key, path=path, **more)
        try:
            return [step async for step in stub.SwapModel(request)]
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "llm") from None


async def refused(house: House, path: str, key: str = "smollm2", **more: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        await swapped(house, path, key, **more)
    return caught.value


async def as_configured(house: House, key: str = "smollm2") -> None:
    """Whatever a test left: unloaded, and with nothing overridden."""
    async with service(house) as stub:
        await stub.UnloadModel(pb.UnloadModelRequest(key=key, drain_ms=1, force=True), timeout=30)
        await stub.OverrideModel(pb.OverrideModelRequest(key=key), timeout=30)


async def chat(house: House, model: str, words: str, **fields: Any) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": words}], **fields}
    async with httpx.AsyncClient(timeout=WITHIN_S) as client:
        answer = await client.post(f"{house.url}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def runs(house: House, key: str = "smollm2") -> bool:
    (instance,) = (await house.models())[key].instances or [pb.Instance()]
    return bool(instance.running_permit_ids)


async def test_running_chats_finish_and_waiting_ones_get_the_new_file(house: House) -> None:
    await as_configured(house)
    story = asyncio.create_task(
        chat(house, "smollm2", "Tell me of the sea.", max_tokens=120, temperature=0)
    )
    await until(lambda: runs(house), 30, "the chat runs")
    swap = asyncio.create_task(swapped(house, "small.gguf"))

    async def draining() -> bool:
        state = (await house.models())["smollm2"].state
        return state in (pb.MODEL_STATE_DRAINING, pb.MODEL_STATE_COLD, pb.MODEL_STATE_LOADING)

    await until(draining, 30, "it drains")
    late = asyncio.create_task(chat(house, "smollm2", "hello", max_tokens=4))
    told = await story
    assert told["usage"]["completion_tokens"] > 20
    assert "sea" in told["choices"][0]["message"]["content"].lower()
    steps = await swap
    assert steps[0].phase == PHASES.PHASE_DRAINING
    assert steps[-1].phase == PHASES.PHASE_DONE
    assert steps[-1].model.state == pb.MODEL_STATE_READY
    assert (await late)["usage"]["completion_tokens"] > 0
    model = (await house.models())["smollm2"]
    assert model.overrides["path"].endswith('small.gguf"')

    await as_configured(house)


async def test_a_file_that_cannot_be_loaded_brings_the_former_back(house: House) -> None:
    await as_configured(house, "tiny")
    before = await chat(house, "tiny", "hello", max_tokens=8, temperature=0)
    called = asyncio.create_task(refused(house, "hollow.gguf", "tiny"))

    async def leaves() -> bool:
        return (await house.models())["tiny"].state != pb.MODEL_STATE_READY

    await until(leaves, 30, "it leaves")
    waited = await chat(house, "tiny", "hello", max_tokens=8, temperature=0)
    fault = await called
    assert fault.reason is Reason.MODEL_FAILED
    assert "hollow.gguf cannot take the place" in fault.message
    assert "blk.0" in fault.message
    assert "The former file serves again." in fault.message
    # Who waited meanwhile was not told of it, and got the former file.
    assert waited["choices"] == before["choices"]
    model = (await house.models())["tiny"]
    assert model.state == pb.MODEL_STATE_READY
    assert not model.overrides


async def test_what_was_not_loaded_is_not_loaded_again(house: House) -> None:
    await as_configured(house, "tiny")
    fault = await refused(house, "hollow.gguf", "tiny")
    assert "The former file stands again." in fault.message
    model = (await house.models())["tiny"]
    assert (model.state, dict(model.overrides)) == (pb.MODEL_STATE_COLD, {})


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../tiny.gguf", Reason.INVALID_REQUEST),
        ("none.gguf", Reason.FILE_NOT_FOUND),
        ("noise.gguf", Reason.MODEL_FAILED),
        ("narrow.gguf", Reason.MODEL_FAILED),  # it is asked for more context than it has
    ],
)
async def test_a_file_that_is_refused_at_once_unloads_nothing(
    house: House, path: str, reason: Reason
) -> None:
    await as_configured(house, "tiny")
    await chat(house, "tiny", "hello", max_tokens=1)
    before = (await house.models())["tiny"]
    assert (await refused(house, path, "tiny")).reason is reason
    after = (await house.models())["tiny"]
    assert after.instances[0].instance_id == before.instances[0].instance_id
    assert not after.overrides


async def test_settings_come_with_the_file_and_are_refused_by_name(house: House) -> None:
    await as_configured(house, "tiny")
    steps = await swapped(house, "narrow.gguf", "tiny", overrides={"context_tokens": "512"})
    (instance,) = steps[-1].model.instances
    assert steps[-1].model.capabilities.context_tokens == 512
    assert instance.placement.kind == "cpu"
    fault = await refused(house, "small.gguf", "tiny", overrides={"places": "0"})
    assert (fault.reason, fault.metadata["param"]) == (Reason.INVALID_REQUEST, "places")
    assert (await house.models())["tiny"].capabilities.context_tokens == 512


async def test_who_takes_too_long_is_not_ended_by_a_swap(house: House) -> None:
    await as_configured(house)
    story = asyncio.create_task(chat(house, "smollm2", "Tell me of the sea.", max_tokens=400))
    await until(lambda: runs(house), 30, "the chat runs")
    fault = await refused(house, "small.gguf", drain_ms=50)
    assert fault.reason is Reason.MODEL_BUSY
    other = await refused(house, "small.gguf", "nobody")
    assert other.reason is Reason.MODEL_NOT_FOUND
    model = (await house.models())["smollm2"]
    assert (model.state, dict(model.overrides)) == (pb.MODEL_STATE_READY, {})
    story.cancel()


async def test_one_swap_at_a_time_and_a_caller_that_leaves_gives_it_up(house: House) -> None:
    await as_configured(house)
    story = asyncio.create_task(chat(house, "smollm2", "Tell me of the sea.", max_tokens=400))
    await until(lambda: runs(house), 30, "the chat runs")
    (before,) = (await house.models())["smollm2"].instances
    async with service(house) as stub:
        call = stub.SwapModel(pb.SwapModelRequest(key="smollm2", path="small.gguf"))
        first = await call.read()
        assert isinstance(first, pb.SwapModelResponse)
        assert first.phase == PHASES.PHASE_DRAINING
        assert (await refused(house, "small.gguf")).reason is Reason.MODEL_BUSY
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.OverrideModel(pb.OverrideModelRequest(key="smollm2"))
        assert fault_of(caught.value, "llm").reason is Reason.MODEL_BUSY
        call.cancel()

        async def as_before() -> bool:
            model = (await house.models())["smollm2"]
            return model.state == pb.MODEL_STATE_READY and not model.overrides

        await until(as_before, 10, "it serves as before")
    (after,) = (await house.models())["smollm2"].instances
    assert after.instance_id == before.instance_id
    assert not story.done()
    story.cancel()


async def test_a_caller_that_leaves_during_the_load_gives_it_up(house: House) -> None:
    await as_configured(house, "tiny")
    before = await chat(house, "tiny", "hello", max_tokens=8, temperature=0)
    async with service(house) as stub:
        call: Any = stub.SwapModel(pb.SwapModelRequest(key="tiny", path="small.gguf"))
        while (step := await call.read()).phase != PHASES.PHASE_LOADING:
            assert step is not grpc.aio.EOF
        call.cancel()

        async def as_before() -> bool:
            model = (await house.models())["tiny"]
            return model.state == pb.MODEL_STATE_READY and not model.overrides

        await until(as_before, 30, "the former file serves again")
    after = await chat(house, "tiny", "hello", max_tokens=8, temperature=0)
    assert after["choices"] == before["choices"]


def cohabit(house: House, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli", *words, "--config", str(house.folder / "cohabit.yaml")],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


async def test_the_command_swaps_and_sets(house: House) -> None:
    await as_configured(house, "tiny")
    done = await asyncio.to_thread(cohabit, house, "load", "tiny", "--set", "context_tokens=512")
    assert done.returncode == 0, done.stderr
    assert (await house.models())["tiny"].capabilities.context_tokens == 512
    done = await asyncio.to_thread(cohabit, house, "swap", "tiny", "small.gguf")
    assert (done.returncode, done.stdout[:23]) == (0, "tiny serves small.gguf "), done.stderr
    assert set((await house.models())["tiny"].overrides) == {"path"}
    done = await asyncio.to_thread(cohabit, house, "swap", "tiny", "../tiny.gguf")
    assert done.returncode == 1
    assert "inside the swap directory" in done.stderr
    done = await asyncio.to_thread(cohabit, house, "load", "tiny", "--set", "places=900")
    assert done.returncode == 1
    assert "from 1 to 256" in done.stderr


async def test_the_edge_swaps_and_shows_it(house: House) -> None:
    await as_configured(house, "tiny")
    async with httpx.AsyncClient(base_url=house.url, timeout=WITHIN_S) as client:
        where = "/v1/admin/models/tiny"
        body = {"path": "small.gguf", "overrides": {"places": 2}}
        answer = await client.post(f"{where}/swap", json=body)
        assert answer.status_code == 200, answer.text
        row = answer.json()
        assert (row["state"], row["places"], row["overrides"]["places"]) == ("ready", 2, 2)
        assert row["instances"][0]["placement"]["profile"] == "cpu"
        assert (await client.post(f"{where}/unload")).json()["state"] == "cold"
        answer = await client.post(f"{where}/load", json={"overrides": {}})
        assert (answer.json()["places"], answer.json()["overrides"]) == (4, {})
        status = (await client.get("/status")).json()
        assert status["services"] == {"broker": "ok", "scheduler": "ok", "llm": "ok"}
        assert status["devices"][0]["kind"] == "cpu"
        memory = (await client.get("/v1/admin/gpu-memory")).json()
        assert {model["name"] for model in memory["models"]} == {"tiny", "smollm2"}
