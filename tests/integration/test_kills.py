"""SIGKILL for each part of the house: it comes back, nobody hangs, nothing is left behind."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import httpx
import openai
import psutil
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.integration.house import House, running, until

TALK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
LONG = {"max_tokens": 1900, "ignore_eos": True}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with running(tmp_path) as house:
        yield house


@pytest.fixture
async def client(house: House) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(house) as client:
        yield client


def client_of(house: House) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{house.url}/v1", api_key="none", max_retries=0)


async def ask(client: openai.AsyncOpenAI) -> str:
    answer = await client.chat.completions.create(model="tiny", messages=TALK, max_tokens=4)
    return answer.choices[0].finish_reason


async def stream_until_killed(client: openai.AsyncOpenAI, victim: psutil.Process) -> str:
    """Stream; kill `victim` after some tokens; how the stream ended."""
    stream = await client.chat.completions.create(
        model="tiny", messages=TALK, stream=True, extra_body=LONG
    )
    seen, pids = 0, [p.pid for p in victim.children(recursive=True)]
    try:
        async for _ in stream:
            seen += 1
            if seen == 5:
                victim.send_signal(signal.SIGKILL)
    except (openai.APIError, httpx.HTTPError) as error:
        return f"error: {error}"
    finally:
        assert not [pid for pid in pids if psutil.pid_exists(pid) and _alive(pid)]
    return "complete"


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def works_again(house: House, client: openai.AsyncOpenAI) -> None:
    """Within 15 s a request is served again, and afterwards nothing is held but the model."""

    async def served() -> bool:
        try:
            return await asyncio.wait_for(ask(client), 10) == "length"
        except (openai.APIError, TimeoutError):
            return False

    await until(served, 15, "a request is served again")

    async def quiet() -> bool:
        status = await house.status()
        return status.permits_in_use == 0 and not any(t.waiting for t in status.tiers)

    await until(quiet, 5, "permits are back")
    engines = [p for p in house.processes() if "services.llm.engine_main" in p.cmdline()]
    assert len(engines) == 1

    async def one_lease() -> bool:
        try:
            return len(await house.leases()) == 1
        except grpc.aio.AioRpcError:  # the broker is on its way back
            return False

    await until(one_lease, 5, "one lease for one model")


async def test_the_engine(house: House, client: openai.AsyncOpenAI) -> None:
    await ask(client)
    end = await stream_until_killed(client, house.process("services.llm.engine_main"))
    assert "engine" in end, end
    assert await ask(client) == "length"  # the very next request
    await works_again(house, client)


async def test_the_llm_service(house: House, client: openai.AsyncOpenAI) -> None:
    await ask(client)
    end = await stream_until_killed(client, house.process("services.llm"))
    assert end.startswith("error")
    await works_again(house, client)


async def test_the_broker(house: House, client: openai.AsyncOpenAI) -> None:
    await ask(client)
    before = {lease.lease_id for lease in await house.leases()}
    assert await stream_until_killed(client, house.process("services.broker")) == "complete"
    await works_again(house, client)
    assert {lease.lease_id for lease in await house.leases()} == before


async def test_the_scheduler_while_a_request_runs(house: House, client: openai.AsyncOpenAI) -> None:
    await ask(client)
    assert await stream_until_killed(client, house.process("services.scheduler")) == "complete"
    await works_again(house, client)


async def test_the_scheduler_while_requests_wait(house: House, client: openai.AsyncOpenAI) -> None:
    await ask(client)
    running = [asyncio.create_task(run_long(client)) for _ in range(4)]

    async def all_permits_are_out() -> bool:
        return (await house.status()).permits_in_use == 4

    await until(all_permits_are_out, 5, "four requests run")
    queued = [asyncio.Event() for _ in range(3)]
    waiting = [asyncio.create_task(stream_that_waits(house, event)) for event in queued]
    async with asyncio.timeout(5):
        for event in queued:
            await event.wait()
    house.process("services.scheduler").kill()
    ended = await asyncio.wait_for(asyncio.gather(*running, *waiting), 30)
    assert ended == ["length"] * 7
    await works_again(house, client)


async def test_the_scheduler_and_the_llm_service_while_requests_wait(
    house: House, client: openai.AsyncOpenAI
) -> None:
    await ask(client)
    running = [asyncio.create_task(run_long(client)) for _ in range(4)]
    queued = asyncio.Event()
    waiting = asyncio.create_task(stream_that_waits(house, queued))
    async with asyncio.timeout(10):
        await queued.wait()
    for module in ("services.scheduler", "services.llm"):
        house.process(module).kill()
    lost = await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 30)
    assert all(isinstance(end, openai.APIStatusError) for end in lost), lost
    assert await asyncio.wait_for(waiting, 30) == "length"
    await works_again(house, client)


async def stream_that_waits(house: House, queued: asyncio.Event) -> str:
    """A stream; `queued` is set once a comment in it says that it waits; how it finished."""
    body = {"model": "tiny", "messages": TALK, "max_tokens": 4, "ignore_eos": True, "stream": True}
    finish = ""
    async with (
        httpx.AsyncClient(base_url=house.url, timeout=60) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith(": keepalive queued"):
                queued.set()
            if line.startswith("data: {"):
                finish = json.loads(line[6:])["choices"][0]["finish_reason"] or finish
    return finish


async def run_long(client: openai.AsyncOpenAI) -> str:
    answer = await client.chat.completions.create(model="tiny", messages=TALK, extra_body=LONG)
    return answer.choices[0].finish_reason


async def test_the_edge(house: House, client: openai.AsyncOpenAI) -> None:
    await ask(client)
    end = await stream_until_killed(client, house.process("edge"))
    assert end.startswith("error")
    await works_again(house, client)


async def test_the_launcher_takes_everything_with_it(tmp_path: Path) -> None:
    with running(tmp_path) as house:
        async with client_of(house) as client:
            await ask(client)
        everything = house.processes()
        assert len(everything) == 5
        house.launcher.kill()
        house.launcher.wait()

        async def gone() -> bool:
            return not any(_alive(p.pid) for p in everything)

        await until(gone, 3, "everything is gone")
