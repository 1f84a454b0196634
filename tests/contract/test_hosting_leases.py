"""What a model service owes to a broker that is away."""

import asyncio
from pathlib import Path

from chassis.channel import open_channel
from cohabit.broker.v1 import broker_pb2 as pb
from cohabit.broker.v1 import broker_pb2_grpc as rpc
from hosting.leases import LeaseBook
from tests.hosting_world import DEADLINE_S, broker_process


async def test_a_release_that_nobody_heard_is_made_again(tmp_path: Path) -> None:
    async with broker_process(tmp_path) as address:
        lease_id = await granted(address)
    book = LeaseBook(address, "toy")
    await book.release(lease_id)
    async with broker_process(tmp_path) as address, open_channel(address) as channel:
        broker: rpc.BrokerServiceAsyncStub = rpc.BrokerServiceStub(channel)
        request = pb.ListLeasesRequest()
        await broker.ListLeases(request, timeout=DEADLINE_S, wait_for_ready=True)
        async with asyncio.timeout(DEADLINE_S):
            while (await broker.ListLeases(request)).leases:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # a poll of another process, bounded above
    await book.close()


async def granted(broker: str) -> str:
    request = pb.AcquireLeaseRequest(
        holder="toy/m", kind=pb.LEASE_KIND_RESIDENT, preferred_mib=100, ttl_ms=600_000
    )
    async with open_channel(broker) as channel:
        stub: rpc.BrokerServiceAsyncStub = rpc.BrokerServiceStub(channel)
        answer = await stub.AcquireLease(request, timeout=DEADLINE_S, wait_for_ready=True)
    return answer.lease.lease_id
