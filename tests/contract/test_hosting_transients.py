"""The leases of running requests: adopted, renewed with what is in use, and always released."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from tests.hosting_world import DEADLINE_S, World, drained, until, world

TRANSIENT = broker_pb2.LEASE_KIND_TRANSIENT


async def used(w: World, lease_id: str) -> int:
    """What the broker knows to be in use of a lease; -1: it has ended."""
    found = {lease.lease_id: lease.materialised_mib for lease in await w.listed()}
    return found.get(lease_id, -1)


async def until_used(w: World, **wanted: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while {lease: await used(w, lease) for lease in wanted} != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_lease_is_kept_while_its_work_runs_and_counted_once(tmp_path: Path) -> None:
    # Only what is told at once reaches the broker in time.
    async with world(tmp_path, renew_every_s=3600) as w:
        instance = await w.ready()
        lease = await w.lease(kind=TRANSIENT, mib=300)
        watch: Any = w.models.WatchModels(pb.WatchModelsRequest())
        await watch.read()
        async with w.generating(instance, f"take {lease} 200", "p1") as call:
            await until_used(w, **{lease: 200, instance.lease_id: 100})
            assert w.model().instances[0].materialised_mib == 300
            assert w.host.lease_ids() == {lease, instance.lease_id}
            async with asyncio.timeout(DEADLINE_S):
                while not (event := await watch.read()).HasField("permit"):
                    pass
            assert (event.permit.permit_id, event.permit.transient_lease_id) == ("p1", lease)
            call.cancel()
        await until_used(w, **{lease: -1, instance.lease_id: 100})


async def test_it_is_renewed_in_time(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        lease = await w.lease(kind=TRANSIENT, mib=300)
        async with w.generating(instance, f"take {lease} 10"):
            await until_used(w, **{lease: 10})
            (before,) = (one for one in await w.listed() if one.lease_id == lease)
            await w.until_leases(
                lambda leases: any(
                    one.lease_id == lease and one.expires_unix_ms > before.expires_unix_ms
                    for one in leases
                )
            )


async def test_two_share_what_is_in_use(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        small, large = [await w.lease(kind=TRANSIENT, mib=mib) for mib in (100, 300)]
        async with AsyncExitStack() as requests:
            for lease, mib, permit in ((small, 50, "p1"), (large, 150, "p2")):
                prompt = f"take {lease} {mib}"
                await requests.enter_async_context(w.generating(instance, prompt, permit))
            await until_used(w, **{small: 50, large: 150, instance.lease_id: 100})
        await until_used(w, **{small: -1, large: -1})


async def test_more_than_was_lent_counts_as_what_was_lent(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        lease = await w.lease(kind=TRANSIENT, mib=50)
        async with w.generating(instance, f"take {lease} 200"):
            await until_used(w, **{lease: 50})


@pytest.mark.parametrize("ending", ["killed", "unloaded"])
async def test_it_is_released_when_the_engine_is_over(tmp_path: Path, ending: str) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        lease = await w.lease(kind=TRANSIENT, mib=300)
        async with w.generating(instance, f"take {lease} 200"):
            await until_used(w, **{lease: 200})
            if ending == "killed":
                os.kill(w.pid(instance), signal.SIGKILL)
                await until(lambda: w.model().state == pb.MODEL_STATE_FAILED, "it failed")
            else:
                await w.unload(drain_ms=1, force=True)
            assert not await w.listed()


async def test_a_lost_one_is_had_again_and_ends_no_work(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        lease = await w.lease(kind=TRANSIENT, mib=300)
        async with w.generating(instance, f"take {lease} 200") as call:
            await until_used(w, **{lease: 200})
            await w.broker.ReleaseLease(broker_pb2.ReleaseLeaseRequest(lease_id=lease))
            await w.until_leases(lambda leases: {one.kind for one in leases} >= {TRANSIENT})
            (anew,) = (one for one in await w.listed() if one.kind == TRANSIENT)
            assert anew.lease_id != lease
            await until_used(w, **{anew.lease_id: 200})
            assert not call.done()
        await until_used(w, **{anew.lease_id: -1})


async def test_one_that_cannot_be_had_again_ends_no_work(tmp_path: Path) -> None:
    async with world(tmp_path, renew_every_s=3600) as w:
        instance = await w.ready()
        lease = await w.lease(kind=TRANSIENT, mib=300)
        async with w.generating(instance, f"take {lease} 200") as call:
            await until_used(w, **{lease: 200})
            await w.lease("other", 600)
            await w.broker.ReleaseLease(broker_pb2.ReleaseLeaseRequest(lease_id=lease))
            another = await w.lease("another", 100)
            w.tenancy(instance).renew_leases()
            await w.broker.ReleaseLease(broker_pb2.ReleaseLeaseRequest(lease_id=another))
            await w.until_leases(lambda leases: TRANSIENT in {one.kind for one in leases})
            assert not call.done()
            assert w.model().state == pb.MODEL_STATE_READY


@pytest.mark.parametrize("holder", ["other", None])
async def test_what_is_no_lease_of_the_model_is_left_alone(
    tmp_path: Path, holder: str | None
) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        lease = await w.lease(holder, kind=TRANSIENT) if holder else "no-such-lease"
        before = await used(w, lease)
        async with w.generating(instance, f"take {lease} 50", "p1"):
            await until(lambda: w.permits, "the permit is known")
            async with w.generating(instance, "hello", "p2") as call:
                assert await asyncio.wait_for(call.read(), DEADLINE_S) is grpc.aio.EOF
        await until(lambda: not w.permits, "all is over")
        assert await used(w, lease) == before


async def test_work_that_is_over_before_the_broker_answers(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        lease = await w.lease(kind=TRANSIENT, mib=300)
        (broker,) = (p for p in psutil.Process().children() if "services.broker" in p.cmdline())
        broker.suspend()
        try:
            async with w.generating(instance, f"take {lease} 200"):
                await until(lambda: w.permits, "the permit is known")
            await until(lambda: not w.permits, "it is over")
        finally:
            broker.resume()
        await until_used(w, **{lease: -1})


async def test_a_next_life_releases_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        lease = await w.lease(kind=TRANSIENT, mib=300)
        async with w.generating(instance, f"take {lease} 0"):
            await w.until_leases(lambda leases: all(one.renewed_unix_ms for one in leases))
            await w.leases.release_leftovers(w.host.lease_ids)
            assert await used(w, lease) == 0  # it is this life's
            await w.leases.release_leftovers(set)
            assert await used(w, lease) == -1
        await drained(w.load(await w.lease()))
