"""Loads that fail, engines that die or fall silent, leases that are lost: under a real broker."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from chassis.errors import Reason
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from tests.hosting_world import DEADLINE_S, drained, engine_pids, kill_engine, refusal, until, world


async def failure(watch: Any) -> pb.Model:
    """The model once it is FAILED, as a watcher sees it."""
    async with asyncio.timeout(DEADLINE_S):
        while (event := await watch.read()).model.state != pb.MODEL_STATE_FAILED:
            pass
    model = event.model
    assert isinstance(model, pb.Model)
    return model


@pytest.mark.parametrize(
    ("engine", "reason", "words"),
    [
        ({"fail": "never_fits"}, "never_fits", "told to fail"),
        ({"exit": 3}, "engine_crashed", "exit status 3"),
        ({"kill": True}, "engine_crashed", "SIGKILL"),
        ({"silent": True, "load_timeout_s": 0.3}, "model_failed", "longer than 0.3 s"),
    ],
)
async def test_a_load_that_fails_says_why_and_cools_down(
    tmp_path: Path, engine: dict[str, Any], reason: str, words: str
) -> None:
    async with world(tmp_path, **engine) as w:
        fault = await refusal(drained(w.load(await w.lease())))
        assert fault.reason is Reason.MODEL_FAILED
        assert fault.metadata["cause"] == reason
        assert words in fault.message
        assert 0 < (fault.retry_after_s or 0) <= 1
        assert w.model().failure.reason == reason
        await w.until_leases(lambda leases: not leases)
        assert (engine_pids(), w.sockets()) == (set(), [])
        kept = await w.lease()
        refused = await refusal(drained(w.load(kept)))
        assert refused.reason is Reason.MODEL_FAILED
        assert 0 < (refused.retry_after_s or 0) <= 1
        assert [lease.lease_id for lease in await w.listed()] == [kept]  # never adopted


async def test_the_cool_down_grows(tmp_path: Path) -> None:
    async with world(tmp_path, exit=1) as w:
        delays = []
        for _ in range(3):
            fault = await refusal(drained(w.load(await w.lease())))
            delays.append(fault.retry_after_s or 0)
            w.toy.record.retry_at_ms = 0  # as if it had been waited out
        assert delays == [pytest.approx(s, abs=0.3) for s in (1, 2, 4)]


async def test_an_engine_that_dies_while_it_serves(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        watch = w.models.WatchModels(pb.WatchModelsRequest())
        snapshot = await watch.read()
        assert isinstance(snapshot, pb.WatchModelsResponse)
        assert snapshot.snapshot.models[0].instances[0].instance_id == instance.instance_id
        seen: list[str] = []
        failed: pb.Model | None = None
        async with w.generating(instance, "hold") as call:
            while failed is None:
                event = await asyncio.wait_for(watch.read(), DEADLINE_S)
                assert isinstance(event, pb.WatchModelsResponse)
                if event.HasField("permit"):
                    assert event.permit.permit_id == "permit-hold"
                    assert event.permit.instance_id == instance.instance_id
                    seen.append(pb.PermitChange.Phase.Name(event.permit.phase))
                    if event.permit.phase == pb.PermitChange.PHASE_STARTED:
                        kill_engine()
                if event.model.state == pb.MODEL_STATE_FAILED:
                    failed = event.model
            fault = await refusal(drained(call))
            assert fault.reason is Reason.SERVICE_UNAVAILABLE
        assert seen == ["PHASE_STARTED", "PHASE_ENDED"]
        assert failed.failure.reason == "engine_crashed"
        assert failed.failure.retry_at_unix_ms <= time.time() * 1000  # at once
        assert not failed.instances
        await w.until_leases(lambda leases: not leases)
        assert (await w.ready()).instance_id != instance.instance_id


async def test_a_failure_is_told_when_its_memory_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        watch = w.models.WatchModels(pb.WatchModelsRequest())
        release, while_releasing = w.leases.release, []

        async def seen(lease_id: str) -> None:
            while_releasing.append(w.model())
            await release(lease_id)

        monkeypatch.setattr(w.leases, "release", seen)
        async with w.generating(instance, "hold"):
            kill_engine()
            assert (await failure(watch)).failure.reason == "engine_crashed"
        assert not await w.listed()
        (model,) = while_releasing
        assert model.state == pb.MODEL_STATE_DRAINING  # and nobody is sent there
        assert [one.address for one in model.instances] == [""]


async def test_a_failure_is_told_although_the_broker_hangs(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        watch = w.models.WatchModels(pb.WatchModelsRequest())
        (broker,) = (p for p in psutil.Process().children() if "services.broker" in p.cmdline())
        broker.suspend()
        try:
            began = time.monotonic()
            async with w.generating(instance, "hold"):
                kill_engine()
                await failure(watch)
            assert time.monotonic() - began < 4.0
        finally:
            broker.resume()


@pytest.mark.parametrize("steps", [0, 1000], ids=["serving", "loading"])
async def test_an_engine_that_falls_silent_is_killed(tmp_path: Path, steps: int) -> None:
    async with world(tmp_path, steps=steps, step_ms=20, silence_s=3.0) as w:
        watch = w.models.WatchModels(pb.WatchModelsRequest())
        call = w.load(await w.lease())
        if steps:
            while (await call.read()).instance.load_progress == 0:
                pass
        else:
            await drained(call)
        async with AsyncExitStack() as requests:
            if not steps:
                held = w.generating(w.model().instances[0], "hold")
                await requests.enter_async_context(held)
                await until(lambda: w.permits, "the permit is known")
            began = time.monotonic()
            (pid,) = engine_pids()
            psutil.Process(pid).suspend()
            failed = await failure(watch)
            assert time.monotonic() - began < 3.0 + 2.0  # at once, by SIGKILL alone
        assert failed.failure.reason == "engine_crashed"
        assert "said nothing for 3 s" in failed.failure.message
        assert (engine_pids(), w.sockets()) == (set(), [])
        assert not w.permits
        await w.until_leases(lambda leases: not leases)


async def test_another_file_need_not_cool_down(tmp_path: Path) -> None:
    async with world(tmp_path, exit=1) as w:
        for _ in range(2):
            await refusal(drained(w.load(await w.lease())))
            assert w.model().state == pb.MODEL_STATE_FAILED
            w.source.change(owner=f"{w.source.spec.owner}x")
        w.source.change(engine={})
        await w.ready()


async def test_a_lost_lease_is_had_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        await w.broker.ReleaseLease(broker_pb2.ReleaseLeaseRequest(lease_id=instance.lease_id))
        await w.until_leases(lambda leases: bool(leases) and leases[0].materialised_mib == 100)
        (anew,) = await w.listed()
        assert anew.lease_id != instance.lease_id
        assert w.model().instances[0].lease_id == anew.lease_id
        assert w.model().state == pb.MODEL_STATE_READY
        await w.unload()
        assert not await w.listed()  # the one it had in the end, not the first


@pytest.mark.parametrize("steps", [0, 1000], ids=["serving", "loading"])
async def test_a_lease_lost_for_good_stops_the_model(tmp_path: Path, steps: int) -> None:
    async with world(tmp_path, steps=steps, step_ms=20) as w:
        w.leases._renew_every_s = 3600
        lease = await w.lease()
        call = asyncio.create_task(drained(w.load(lease)))
        await until(engine_pids, "the engine runs")
        if not steps:
            await call
        told = 0 if steps else 100
        await w.until_leases(lambda leases: leases[0].materialised_mib == told)
        # It renews no more by itself; others take what is left and what the model lived on.
        await w.lease("other", 900)
        await w.broker.ReleaseLease(broker_pb2.ReleaseLeaseRequest(lease_id=lease))
        await w.lease("another", 50)
        (tenancy,) = w.toy.tenancies
        tenancy.renew.set()
        await until(lambda: w.model().state == pb.MODEL_STATE_FAILED, "it failed")
        assert w.model().failure.reason == "lease_not_found"
        assert not engine_pids()
        if steps:
            assert (await refusal(call)).metadata["cause"] == "lease_not_found"
