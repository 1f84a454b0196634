"""Engines that end themselves to be rid of work: another follows on the same lease."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chassis.clock import steady_ms
from chassis.errors import Reason
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting.core import State
from hosting.trial import on_trial
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


@asynccontextmanager
async def watching(w: World) -> AsyncIterator[Any]:
    watch = w.models.WatchModels(pb.WatchModelsRequest())
    await watch.read()
    try:
        yield watch
    finally:
        watch.cancel()


async def told(watch: Any, until_state: "pb.ModelState.ValueType") -> list[str]:
    """States and permits, as they are told, to the first model in that state."""
    heard: list[str] = []
    async with asyncio.timeout(DEADLINE_S):
        while True:
            event = await watch.read()
            if event.HasField("permit"):
                heard.append(pb.PermitChange.Phase.Name(event.permit.phase))
            if event.HasField("model"):
                state = event.model.state
                name = pb.ModelState.Name(state)
                if not heard or heard[-1] != name:
                    heard.append(name)
                if state == until_state:
                    return heard


async def renewed(w: World, instance: pb.Instance, prompt: str = "stuck") -> None:
    """Cancel what cannot be cancelled."""
    async with w.generating(instance, prompt, f"permit-{prompt}"):
        await until(lambda: w.permits, "the permit is known")


async def until_ready(w: World) -> pb.Instance:
    await until(lambda: w.model().state == pb.MODEL_STATE_READY, "it serves again")
    (instance,) = w.model().instances
    return instance


async def test_another_process_follows_on_the_same_lease(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        first = await w.ready()
        pid = w.pid(first)
        transient = await w.lease(mib=50, kind=broker_pb2.LEASE_KIND_TRANSIENT)
        async with watching(w) as watch:
            await renewed(w, first, f"stuck {transient} 50")
            heard = await told(watch, pb.MODEL_STATE_LOADING)
            heard += await told(watch, pb.MODEL_STATE_READY)
        # Nobody is sent there before anybody hears that there is a free place.
        assert heard.index("MODEL_STATE_LOADING") < heard.index("PHASE_ENDED")
        again = await until_ready(w)
        assert again.instance_id == first.instance_id
        assert again.lease_id == first.lease_id
        assert again.address != first.address
        assert w.pid(again) != pid
        assert not runs(pid)
        await w.until_leases(lambda leases: [one.lease_id for one in leases] == [first.lease_id])
        async with w.generating(again, "hello"):
            pass


async def test_renewals_are_no_failures(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        for turn in range(3):
            async with w.generating(instance, "stuck", f"permit-{turn}"):
                await until(lambda: w.permits, "the permit is known")
            await until(lambda: w.toy.state is State.LOADING, "it renews")
            instance = await until_ready(w)
            assert instance.load_ms > 0
        assert (w.toy.record.failures, w.toy.record.reason) == (0, "")


async def test_an_engine_that_vanishes_with_the_status_renews_too(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        first = await w.ready()
        async with w.generating(first, "vanish") as call:
            fault = await refusal(drained(call))
            assert fault.reason is Reason.SERVICE_UNAVAILABLE
        await until(lambda: w.toy.tenancies[0].life.state is not State.READY, "it renews")
        assert (await until_ready(w)).instance_id == first.instance_id
        assert w.toy.record.failures == 0


async def test_that_status_in_a_load_is_a_failure(tmp_path: Path) -> None:
    async with world(tmp_path, exit=75) as w:
        fault = await refusal(drained(w.load(await w.lease())))
        assert fault.reason is Reason.MODEL_FAILED
        assert "exit status 75" in fault.message


async def test_the_next_process_waits_until_the_former_is_gone(tmp_path: Path) -> None:
    stays = tmp_path / "stays"
    async with world(tmp_path) as w:
        stays.touch()
        first = await w.ready()
        pid = w.pid(first)
        async with w.generating(first, f"announce {stays}", "permit-1"):
            await until(lambda: w.toy.state is State.LOADING, "it is heard")
            await until(lambda: len(engine_pids()) == 2, "the next one starts")
            assert runs(pid)
            assert w.permits == {"permit-1"}
            assert len(w.sockets()) == 1
            assert w.toy.address == ""
            stays.unlink()
            await until_ready(w)
            assert not runs(pid)
            assert w.permits == set()


async def test_over_tcp_it_takes_over_the_port(tmp_path: Path, unused_tcp_port: int) -> None:
    stays = tmp_path / "stays"
    slow = tmp_path / "slow"
    ports = (unused_tcp_port, unused_tcp_port)
    async with world(tmp_path, ports=ports, slow_with_file=str(slow)) as w:
        stays.touch()
        first = await w.ready()
        pid = w.pid(first)
        slow.touch()
        async with w.generating(first, f"announce {stays}", "permit-1"):
            await until(lambda: len(engine_pids()) == 2, "the next one starts")
            stays.unlink()
            await until(lambda: not runs(pid), "the former ends")
            await until(lambda: w.toy.tenancies[0].progress == 0.5, "the next one loads")
            assert w.toy.state is State.LOADING  # the former's last words are not the next one's
            slow.unlink()
        again = await until_ready(w)
        assert again.address == first.address
        async with w.generating(again, "hello"):
            pass


async def test_over_tcp_it_has_another_port_where_there_is_one(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with world(tmp_path, ports=(unused_tcp_port, unused_tcp_port + 9)) as w:
        first = await w.ready()
        async with watching(w) as watch:
            await renewed(w, first)
            await told(watch, pb.MODEL_STATE_LOADING)
        again = await until_ready(w)
        assert again.instance_id == first.instance_id
        # Whoever was sent to the former does not find this one, and may go elsewhere.
        assert again.address != first.address


async def test_a_renewal_whose_load_fails_is_a_failure(tmp_path: Path) -> None:
    breaks = tmp_path / "breaks"
    async with world(tmp_path, fails_with_file=str(breaks)) as w:
        instance = await w.ready()
        breaks.touch()
        await renewed(w, instance)
        await until(lambda: w.toy.state is State.FAILED, "it fails")
        assert "found its file" in w.toy.record.message
        # A crash of what has served would cost no delay.
        assert w.toy.record.cooling_ms(steady_ms()) > 0
        await w.until_leases(lambda leases: not leases)


async def test_a_trial_is_over_once_its_engine_serves(tmp_path: Path) -> None:
    breaks = tmp_path / "breaks"
    async with world(tmp_path, fails_with_file=str(breaks)) as w:
        with on_trial(w.toy):
            instance = await w.ready()
            breaks.touch()
            await renewed(w, instance)
            await until(lambda: w.toy.state is State.FAILED, "it fails")


async def test_the_load_timeout_applies(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    async with world(tmp_path, slow_with_file=str(slow), load_timeout_s=3.0) as w:
        instance = await w.ready()
        slow.touch()
        await renewed(w, instance)
        await until(lambda: w.toy.state is State.FAILED, "it takes too long")
        assert "longer than 3 s" in w.toy.record.message


async def test_an_unload_meanwhile_wins(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    async with world(tmp_path, slow_with_file=str(slow)) as w:
        instance = await w.ready()
        slow.touch()
        await renewed(w, instance)
        await until(lambda: w.toy.state is State.LOADING, "it renews")
        assert (await w.unload()).state == pb.MODEL_STATE_COLD
        await w.until_leases(lambda leases: not leases)
        assert engine_pids() == set()


async def test_an_unload_between_the_word_and_the_end_wins(tmp_path: Path) -> None:
    stays = tmp_path / "stays"
    async with world(tmp_path) as w:
        stays.touch()
        first = await w.ready()
        async with w.generating(first, f"announce {stays}", "permit-1"):
            await until(lambda: len(engine_pids()) == 2, "the next one starts")
            assert (await w.unload(force=True)).state == pb.MODEL_STATE_COLD
            assert engine_pids() == set()
        assert w.permits == set()
        await w.until_leases(lambda leases: not leases)


@pytest.mark.parametrize("force", [False, True])
async def test_who_drains_it_gets_it_unloaded(tmp_path: Path, force: bool) -> None:
    async with world(tmp_path) as w:
        first = await w.ready()
        tenancy = w.tenancy(first)
        async with watching(w) as watch:
            async with w.generating(first, "stuck"):
                await until(lambda: w.permits, "the permit is known")
                drain_ms = 50 if force else 10_000
                unload = asyncio.create_task(w.unload(drain_ms=drain_ms, force=force))
                await until(lambda: w.toy.state is not State.READY, "it drains")
            assert (await unload).state == pb.MODEL_STATE_COLD
            heard = await told(watch, pb.MODEL_STATE_COLD)
        assert "MODEL_STATE_LOADING" not in heard
        assert not tenancy.renewing  # so that no process was started in vain
        await w.until_leases(lambda leases: not leases)


async def test_who_joins_and_leaves_does_not_give_it_up(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    async with world(tmp_path, slow_with_file=str(slow)) as w:
        first = await w.ready()
        slow.touch()
        await renewed(w, first)
        await until(lambda: w.toy.state is State.LOADING, "it renews")
        call = w.load(first.lease_id)
        event = await call.read()
        assert event.instance.state == pb.MODEL_STATE_LOADING
        call.cancel()
        await until(lambda: w.tenancy(first).loaders == 0, "the caller has left")
        slow.unlink()
        assert (await until_ready(w)).instance_id == first.instance_id


async def test_nothing_is_taken_before_the_model_is_there(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.touch()
    async with world(tmp_path, slow_with_file=str(slow)) as w:
        load = w.load(await w.lease())
        while (await load.read()).instance.load_progress == 0:
            pass
        (address,) = (f"unix:{path}" for path in w.sockets())
        (known,) = w.model().instances
        instance = pb.Instance(instance_id=known.instance_id, address=address)
        async with w.calling(instance, "early", "permit-1") as call:
            fault = await refusal(drained(call))
            assert fault.reason is Reason.SERVICE_UNAVAILABLE
            assert "not loaded its model yet" in fault.message
        slow.unlink()
        await drained(load)
        async with w.generating(w.model().instances[0], "late"):
            pass
