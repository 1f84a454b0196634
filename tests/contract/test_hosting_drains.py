"""Engines that have to go while something runs on them: what becomes of it, and of who comes."""

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import psutil

from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.models.v1 import models_pb2 as pb
from hosting.values import Kind, ModelSpec
from tests.hosting_world import (
    DEADLINE_S,
    Described,
    drained,
    engine_pids,
    refusal,
    until,
    world,
)


async def test_unload_waits_for_what_runs_or_leaves_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        async with w.generating(instance, "hold") as call:
            await until(lambda: w.model().instances[0].running_permit_ids, "the permit is known")
            assert list(w.model().instances[0].running_permit_ids) == ["permit-hold"]
            fault = await refusal(w.unload(drain_ms=50))
            assert fault.reason is Reason.MODEL_BUSY
            assert w.model().state == pb.MODEL_STATE_READY

            leaving = asyncio.create_task(w.unload())
            await until(lambda: w.model().state == pb.MODEL_STATE_DRAINING, "it drains")
            refused = await refusal(drained(w.load(await w.lease())))
            assert refused.reason is Reason.MODEL_BUSY
            call.cancel()
            assert (await leaving).state == pb.MODEL_STATE_COLD
        assert not engine_pids()


async def test_a_service_that_stops_lets_its_work_end(tmp_path: Path) -> None:
    async with world(tmp_path, drain_s=DEADLINE_S) as w:
        other = Described(ModelSpec("other", Kind.LANGUAGE, "chat", 100))
        await w.host.relist(("toy", "other"), {"other": other})
        async with w.generating(await w.ready(), "hold") as call:
            await until(lambda: w.permits, "the permit is known")
            finishing = asyncio.create_task(w.host.finish())
            await until(lambda: w.model().state == pb.MODEL_STATE_DRAINING, "it drains")
            refused = await refusal(drained(w.load(await w.lease())))
            assert refused.reason is Reason.MODEL_BUSY
            refused = await refusal(drained(w.load(await w.lease("other"), "other")))
            assert refused.reason is Reason.SERVICE_UNAVAILABLE
            # Who wanted it gone and waits no longer does not have it serve again.
            assert (await refusal(w.unload(drain_ms=50))).reason is Reason.MODEL_BUSY
            assert w.model().state == pb.MODEL_STATE_DRAINING
            assert not finishing.done()
            call.cancel()
            await finishing
        # Nobody has it serve again: what has been waited for is that it goes.
        assert w.model().state == pb.MODEL_STATE_DRAINING


async def test_what_takes_longer_ends_with_the_service(tmp_path: Path) -> None:
    async with world(tmp_path, drain_s=0.05) as w, w.generating(await w.ready(), "hold") as call:
        await until(lambda: w.permits, "the permit is known")
        await w.host.finish()
        assert (await refusal(drained(call))).reason is Reason.MODEL_EVICTED


async def test_a_drain_that_nobody_waits_for_is_taken_back(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        async with w.generating(instance, "hold"):
            await until(lambda: w.permits, "the permit is known")
            call = w.models.UnloadModel(pb.UnloadModelRequest(key="toy"))
            await until(lambda: w.model().state == pb.MODEL_STATE_DRAINING, "it drains")
            other = asyncio.create_task(w.unload(drain_ms=300))
            await until(lambda: w.toy.tenancies[0].drainers == 2, "both wait")
            call.cancel()
            await until(lambda: w.toy.tenancies[0].drainers == 1, "one waits")
            assert w.model().state == pb.MODEL_STATE_DRAINING
            assert (await refusal(other)).reason is Reason.MODEL_BUSY
            assert w.model().state == pb.MODEL_STATE_READY


async def test_force_ends_what_runs(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        async with w.generating(await w.ready(), "hold") as call:
            await until(lambda: w.permits, "the permit is known")
            gone = await w.unload(drain_ms=1, force=True)
            assert gone.state == pb.MODEL_STATE_COLD
            assert (engine_pids(), await w.listed()) == (set(), [])
            fault = await refusal(drained(call))
            assert (fault.reason, fault.retry_after_s) == (Reason.MODEL_EVICTED, 1.0)
        assert not w.permits


async def test_a_draining_engine_takes_nothing_in(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        async with w.generating(instance, "hold"):
            await until(lambda: w.permits, "the permit is known")
            leaving = asyncio.create_task(w.unload(drain_ms=60_000))
            await until(lambda: w.tenancy(instance).drainers, "it drains")

            # One permit or the other may slip in before the engine knows.
            numbers = count()
            fault: Fault | None = None
            while fault is None:
                async with w.calling(instance, "hello", f"p{next(numbers)}") as call:
                    fault = await _failure(call)
            assert (fault.reason, fault.retry_after_s) == (Reason.MODEL_EVICTED, 1.0)
            assert TAKEN_IN not in dict(await call.initial_metadata() or ())
            leaving.cancel()
            await until(lambda: w.model().state == pb.MODEL_STATE_READY, "READY again")
            async with w.generating(instance, "hello"):
                pass


async def _failure(call: Any) -> Fault | None:
    try:
        await drained(call)
    except grpc.aio.AioRpcError as error:
        return fault_of(error, "engine")
    return None


async def test_words_on_their_way_do_not_hide_the_reason(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.generating(await w.ready(), "flood") as call:
        reading = asyncio.create_task(_failure(call))
        await until(lambda: w.permits, "the permit is known")
        await w.unload(drain_ms=50, force=True)
        fault = await reading
        assert fault is not None
        assert fault.reason is Reason.MODEL_EVICTED


async def test_a_stop_ends_what_runs_and_says_why(tmp_path: Path) -> None:
    async with world(tmp_path) as w, w.generating(await w.ready(), "hold") as call:
        await until(lambda: w.permits, "the permit is known")
        await w.host.close()
        assert (await refusal(drained(call))).reason is Reason.MODEL_EVICTED


async def test_an_engine_that_dies_while_it_drains_is_unloaded(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        async with w.generating(instance, "hold"):
            await until(lambda: w.permits, "the permit is known")
            leaving = asyncio.create_task(w.unload(drain_ms=60_000))
            await until(lambda: w.tenancy(instance).drainers, "it drains")
            psutil.Process(w.pid(instance)).kill()
            assert (await asyncio.wait_for(leaving, DEADLINE_S)).state == pb.MODEL_STATE_COLD
        assert not await w.listed()


async def test_force_does_not_wait_for_an_engine_that_hangs(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        psutil.Process(w.pid(instance)).suspend()
        assert (await w.unload(drain_ms=1, force=True)).state == pb.MODEL_STATE_COLD
        assert (engine_pids(), await w.listed()) == (set(), [])


async def test_without_force_an_engine_that_hangs_is_busy(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        frozen = psutil.Process(w.pid(instance))
        frozen.suspend()
        try:
            assert (await refusal(w.unload(drain_ms=1))).reason is Reason.MODEL_BUSY
            assert w.model().state == pb.MODEL_STATE_READY
        finally:
            frozen.resume()
