"""Crowds: 200 streams over four permits in tier order, and 5,000 calls waiting at once."""

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import pairwise

import grpc
import httpx
import pytest

from chassis.channel import open_channel
from cohabit.common.v1 import common_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc as rpc
from tests.integration.house import House, running, until

TIERS = ("paid", "sub", "free", "background")
STREAMS = 200
Admitted = grpc.aio.UnaryStreamCall[pb.AdmitRequest, pb.AdmitResponse]
WAITING = 5_000


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        yield house


async def stream(client: httpx.AsyncClient, name: str) -> str:
    """One stream under the request id `name`, whose beginning is its tier; how it finished."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 40,
        "ignore_eos": True,
        "stream": True,
    }
    finish = ""
    headers = {"x-cohabit-tier": name.partition("-")[0], "x-request-id": name}
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                finish = event["choices"][0]["finish_reason"] or finish
    return finish


def completed(house: House) -> list[str]:
    """The tiers of finished streams in the order in which the edge finished them.

    Not as this client saw them: with 200 sockets to read it falls behind by a tenth of a second.
    """
    lines = re.findall(r"^edge +\| ({.*})$", house.log.read_text(), re.MULTILINE)
    names = [str(json.loads(line).get("request_id", "")) for line in lines]
    return [name.partition("-")[0] for name in names if name.partition("-")[2].isdigit()]


def memory_mib(house: House) -> float:
    return sum(process.memory_info().rss for process in house.processes()) / 2**20


async def waiting(house: House) -> int:
    return sum(tier.waiting for tier in (await house.status()).tiers)


async def test_two_hundred_streams_complete_in_tier_order(house: House) -> None:
    limits = httpx.Limits(max_connections=STREAMS + 8)
    async with httpx.AsyncClient(base_url=house.url, timeout=90, limits=limits) as client:
        await stream(client, "paid-first")  # the model is loaded
        before = memory_mib(house)
        async with open_channel(house.address("scheduler")) as channel:
            # Four permits are held back until all 200 wait, so that only tiers decide.
            holders = [await _hold(channel) for _ in range(4)]
            tasks = [
                asyncio.create_task(stream(client, f"{TIERS[n % 4]}-{n}")) for n in range(STREAMS)
            ]

            async def all_wait() -> bool:
                return await waiting(house) == STREAMS

            await until(all_wait, 20, "200 wait")
            for call in holders:
                call.cancel()
            finishes = await asyncio.gather(*tasks)
    assert finishes == ["length"] * STREAMS
    order = completed(house)
    assert len(order) == STREAMS
    # Four run side by side: those next to the border of two tiers may overtake each other.
    for above, below in pairwise(TIERS):
        last = STREAMS - 1 - order[::-1].index(above)
        assert last < order.index(below) + 2 * 4, "".join(tier[0] for tier in order)
    assert memory_mib(house) - before < 120
    status = await house.status()
    assert status.permits_in_use == 0


async def test_five_thousand_calls_wait_and_none_is_refused(house: House) -> None:
    scheduler = house.process("services.scheduler")
    async with open_channel(house.address("scheduler")) as channel:
        holders = [await _hold(channel) for _ in range(4)]
        stub: rpc.SchedulerServiceAsyncStub = rpc.SchedulerServiceStub(channel)
        request = pb.AdmitRequest(model="tiny", tier=common_pb2.TIER_FREE)
        calls = [stub.Admit(request) for _ in range(WAITING)]
        firsts = await asyncio.wait_for(
            asyncio.gather(*(call.read() for call in calls), return_exceptions=True), 60
        )
        refused = [first for first in firsts if isinstance(first, BaseException)]
        assert not refused, refused[:3]
        assert all(isinstance(f, pb.AdmitResponse) and f.HasField("queued") for f in firsts)
        assert await waiting(house) == WAITING
        assert scheduler.memory_info().rss < 600 * 2**20
        for call in (*calls, *holders):
            call.cancel()

    async def nobody() -> bool:
        return await waiting(house) == 0 and (await house.status()).permits_in_use == 0

    await until(nobody, 20, "all 5,000 have left")


async def _hold(channel: grpc.aio.Channel) -> Admitted:
    """A permit that is granted and, for the five seconds until it lapses, not used."""
    stub: rpc.SchedulerServiceAsyncStub = rpc.SchedulerServiceStub(channel)
    call = stub.Admit(pb.AdmitRequest(model="tiny", tier=common_pb2.TIER_PAID))
    async with asyncio.timeout(20):
        while True:
            event = await call.read()
            assert isinstance(event, pb.AdmitResponse)
            if event.HasField("granted"):
                return call
