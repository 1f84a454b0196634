"""Crowds: 200 streams over four permits in tier order, and 5,000 calls waiting at once."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass

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
WAITING = 5_000


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("h")) as house:
        yield house


@dataclass(frozen=True)
class Served:
    """When a stream's first text came, in the order of all first texts."""

    tier: str
    order: int
    finish: str


async def stream(client: httpx.AsyncClient, tier: str, order: list[int]) -> Served:
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 40,
        "ignore_eos": True,
        "stream": True,
    }
    mine, finish = -1, ""
    headers = {"x-cohabit-tier": tier}
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            choice = event["choices"][0]
            if choice["delta"].get("content") and mine < 0:
                mine = len(order)
                order.append(mine)
            finish = choice["finish_reason"] or finish
    return Served(tier, mine, finish)


def memory_mib(house: House) -> float:
    return sum(process.memory_info().rss for process in house.processes()) / 2**20


async def waiting(house: House) -> int:
    return sum(tier.waiting for tier in (await house.status()).tiers)


async def test_two_hundred_streams_complete_in_tier_order(house: House) -> None:
    limits = httpx.Limits(max_connections=STREAMS + 8)
    order: list[int] = []
    async with httpx.AsyncClient(base_url=house.url, timeout=90, limits=limits) as client:
        await stream(client, "paid", [])  # the model is loaded
        before = memory_mib(house)
        async with open_channel(house.address("scheduler")) as channel:
            # Four permits are held back until all 200 wait, so that only tiers decide.
            holders = [await _hold(channel) for _ in range(4)]
            tasks = [
                asyncio.create_task(stream(client, TIERS[n % 4], order)) for n in range(STREAMS)
            ]

            async def all_wait() -> bool:
                return await waiting(house) == STREAMS

            await until(all_wait, 20, "200 wait")
            for call in holders:
                call.cancel()
            served = await asyncio.gather(*tasks)
    assert all(one.finish == "length" for one in served)
    by_tier = {t: sorted(s.order for s in served if s.tier == t) for t in TIERS}
    # Four run side by side, so first texts of neighbours may swap places; tiers may not mix more.
    for above, below in zip(TIERS, TIERS[1:], strict=False):
        assert by_tier[above][-1] < by_tier[below][0] + 4, by_tier
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


async def _hold(
    channel: grpc.aio.Channel,
) -> "grpc.aio.UnaryStreamCall[pb.AdmitRequest, pb.AdmitResponse]":
    """A permit that is granted and, for the five seconds until it lapses, not used."""
    stub: rpc.SchedulerServiceAsyncStub = rpc.SchedulerServiceStub(channel)
    call = stub.Admit(pb.AdmitRequest(model="tiny", tier=common_pb2.TIER_PAID))
    async with asyncio.timeout(20):
        while True:
            event = await call.read()
            assert isinstance(event, pb.AdmitResponse)
            if event.HasField("granted"):
                return call
