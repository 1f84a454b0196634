"""Several engines of one model: each with a life, a lease and permits of its own."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Reason
from cohabit.models.v1 import models_pb2 as pb
from tests.hosting_world import (
    DEADLINE_S,
    World,
    drained,
    engine_pids,
    refusal,
    runs,
    until,
    world,
)


async def two(w: World) -> tuple[pb.Instance, pb.Instance]:
    return await w.ready(), await w.ready()


async def leases(w: World) -> set[str]:
    return {lease.lease_id for lease in await w.listed()}


async def test_each_load_starts_another_until_there_are_enough(tmp_path: Path) -> None:
    async with world(tmp_path, instances=2, steps=5, step_ms=20) as w:
        first, second, third = [await w.lease() for _ in range(3)]
        loads = await asyncio.gather(*(drained(w.load(one)) for one in (first, second)))
        one, other = (events[-1].instance for events in loads)
        assert one.instance_id != other.instance_id
        assert {one.lease_id, other.lease_id} == {first, second}
        (again,) = await drained(w.load(third))
        assert again.instance.instance_id in (one.instance_id, other.instance_id)
        assert await leases(w) == {first, second}
        model = w.model()
        assert (model.state, model.max_instances) == (pb.MODEL_STATE_READY, 2)
        listed = {each.instance_id: each.address for each in model.instances}
        assert listed == {each.instance_id: each.address for each in (one, other)}
        assert len(engine_pids()) == len(set(listed.values())) == 2
        assert (await w.unload()).state == pb.MODEL_STATE_COLD
        assert (engine_pids(), await leases(w)) == (set(), set())


async def test_the_same_lease_twice_is_the_same_load(tmp_path: Path) -> None:
    async with world(tmp_path, instances=3, steps=5, step_ms=20) as w:
        lease = await w.lease()
        loads = await asyncio.gather(*(drained(w.load(lease)) for _ in range(3)))
        assert len({events[-1].instance.instance_id for events in loads}) == 1
        assert len(engine_pids()) == 1
        assert await leases(w) == {lease}


async def test_one_that_dies_leaves_the_others_alone(tmp_path: Path) -> None:
    async with world(tmp_path, instances=2) as w:
        one, other = await two(w)
        watch: Any = w.models.WatchModels(pb.WatchModelsRequest())
        assert len((await watch.read()).snapshot.models[0].instances) == 2
        async with (
            w.generating(one, "hold", "p1") as lost,
            w.generating(other, "hold", "p2") as kept,
        ):
            await until(lambda: w.permits == {"p1", "p2"}, "both permits are known")
            os.kill(w.pid(one), signal.SIGKILL)
            assert (await refusal(drained(lost))).reason is Reason.SERVICE_UNAVAILABLE
            await until(lambda: len(w.toy.tenancies) == 1, "it has left the set")
            assert w.permits == {"p2"}
            assert not kept.done()
            model = w.model()
            assert model.state == pb.MODEL_STATE_READY
            assert not model.HasField("failure")
            assert [each.instance_id for each in model.instances] == [other.instance_id]
            assert list(model.instances[0].running_permit_ids) == ["p2"]
            assert await leases(w) == {other.lease_id}
            ended = await _ended(watch, "p1")
            assert (ended.model_key, ended.instance_id) == ("toy", one.instance_id)
            third = await w.ready()  # the first crash costs no delay
            assert third.instance_id not in (one.instance_id, other.instance_id)
        async with w.generating(other, "hello"):
            pass


async def _ended(watch: Any, permit_id: str) -> pb.PermitChange:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            change = (await watch.read()).permit
            if (change.permit_id, change.phase) == (permit_id, pb.PermitChange.PHASE_ENDED):
                assert isinstance(change, pb.PermitChange)
                return change


async def test_a_load_that_fails_cools_down_further_ones_alone(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    async with world(tmp_path, instances=2, fails_with_file=str(broken)) as w:
        one = await w.ready()
        broken.touch()
        fault = await refusal(drained(w.load(await w.lease())))
        assert (fault.reason, fault.metadata["cause"]) == (Reason.MODEL_FAILED, "model_failed")
        assert 0 < (fault.retry_after_s or 0) <= 1
        kept = await w.lease()
        assert (await refusal(drained(w.load(kept)))).reason is Reason.MODEL_FAILED
        assert w.model().state == pb.MODEL_STATE_READY
        assert not w.model().HasField("failure")
        assert await leases(w) == {one.lease_id, kept}
        async with w.generating(one, "hello"):
            pass
        assert (await w.unload(instance_id=one.instance_id)).state == pb.MODEL_STATE_COLD


async def test_the_last_to_fail_makes_the_model_failed(tmp_path: Path) -> None:
    async with world(tmp_path, instances=2) as w:
        for instance in await two(w):
            assert w.model().state == pb.MODEL_STATE_READY
            tenancy = w.tenancy(instance)
            os.kill(w.pid(instance), signal.SIGKILL)
            await asyncio.wait_for(tenancy.over.wait(), DEADLINE_S)
        assert w.model().state == pb.MODEL_STATE_FAILED
        assert w.model().failure.reason == "engine_crashed"


def _lists(w: World, instance: pb.Instance) -> bool:
    return instance.instance_id in {one.instance_id for one in w.model().instances}


async def test_one_is_unloaded_by_its_name(tmp_path: Path) -> None:
    async with world(tmp_path, instances=2) as w:
        one, other = await two(w)
        gone = await w.unload(instance_id=one.instance_id)
        assert [each.instance_id for each in gone.instances] == [other.instance_id]
        assert await leases(w) == {other.lease_id}
        fault = await refusal(w.unload(instance_id=one.instance_id))
        assert fault.reason is Reason.MODEL_NOT_FOUND
        async with w.generating(other, "hello"):
            pass


async def test_those_that_can_leave_leave(tmp_path: Path) -> None:
    async with world(tmp_path, instances=2) as w:
        one, other = await two(w)
        async with w.generating(one, "hold"):
            await until(lambda: w.permits, "the permit is known")
            fault = await refusal(w.unload(drain_ms=200))
            assert (fault.reason, "1 request" in fault.message) == (Reason.MODEL_BUSY, True)
            assert w.model().state == pb.MODEL_STATE_READY
            assert [each.instance_id for each in w.model().instances] == [one.instance_id]
            assert await leases(w) == {one.lease_id}
        assert not _lists(w, other)


@pytest.mark.parametrize("stage", ["starting", "reading"])
async def test_a_load_that_is_given_up_concerns_its_instance_alone(
    tmp_path: Path, stage: str
) -> None:
    slow = tmp_path / "slow"
    async with world(tmp_path, instances=2, slow_with_file=str(slow)) as w:
        one = await w.ready()
        slow.touch()
        lease = await w.lease()
        call = w.load(lease)
        loading = (await call.read()).instance
        while stage == "reading" and not (await call.read()).instance.load_progress:
            pass
        await until(lambda: w.tenancy(loading).engine, "its process runs")
        pid = w.pid(loading)
        released: list[bool] = []
        w.leases.release = _telling(w.leases.release, pid, released)  # type: ignore[method-assign]
        call.cancel()
        assert await until(lambda: not runs(pid), "the process is gone") < 4000
        await until(lambda: not _lists(w, loading), "it has left")
        assert released == [False]  # not while the process ran
        assert await leases(w) == {one.lease_id}
        assert w.model().state == pb.MODEL_STATE_READY
        assert not w.toy.record.failures
        async with w.generating(one, "hello"):
            pass


def _telling(release: Any, pid: int, released: list[bool]) -> Any:
    async def telling(lease_id: str) -> None:
        released.append(runs(pid))
        await release(lease_id)

    return telling
