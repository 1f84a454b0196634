"""Loads, unloads, crashes and leases of real engine processes under a real broker."""

import asyncio
import json
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from chassis.errors import Fault, Reason
from chassis.process import child_env
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting import landlord
from hosting import servicer as hosting_servicer
from tests.hosting_world import DEADLINE_S, drained, engine_pids, refusal, runs, until, world

ROOT = Path(__file__).parents[2]


async def test_a_load_streams_progress_and_ends_with_an_address_that_answers(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, steps=50, step_ms=30) as w:
        events = await drained(w.load(await w.lease()))
        progress = [e.instance.load_progress for e in events[:-1]]
        assert {e.instance.state for e in events[:-1]} == {pb.MODEL_STATE_LOADING}
        assert not any(e.instance.address for e in events[:-1])
        assert progress == sorted(progress)
        assert len(set(progress)) > 3
        instance = events[-1].instance
        assert instance.state == pb.MODEL_STATE_READY
        assert instance.places == 2
        assert instance.load_ms >= 1500
        assert instance.materialised_mib > 0
        async with w.generating(instance, "hello") as call:
            assert await asyncio.wait_for(call.read(), DEADLINE_S) is grpc.aio.EOF
        listed = await w.models.ListModels(pb.ListModelsRequest())
        assert listed.models[0].capabilities.context_tokens == 77
        gone = await w.unload()
        assert gone.state == pb.MODEL_STATE_COLD
        assert (await w.listed(), engine_pids(), w.sockets()) == ([], set(), [])


async def test_a_second_load_joins_and_gives_its_lease_back(tmp_path: Path) -> None:
    async with world(tmp_path, steps=10, step_ms=30) as w:
        first, second, third = [await w.lease() for _ in range(3)]
        one, two = await asyncio.gather(drained(w.load(first)), drained(w.load(second)))
        assert one[-1].instance.instance_id == two[-1].instance.instance_id
        (answer,) = await drained(w.load(third))
        assert answer.instance.instance_id == one[-1].instance.instance_id
        own = one[-1].instance.lease_id
        assert [lease.lease_id for lease in await w.listed()] == [own]
        await drained(w.load(own))  # repeated: must not lose the lease it lives on
        assert [lease.lease_id for lease in await w.listed()] == [own]
        assert len(engine_pids()) == 1


async def test_the_lease_of_another_is_neither_used_nor_released(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        other = await w.lease(key="other")
        refused = await refusal(drained(w.load(other)))
        assert refused.reason is Reason.LEASE_REQUIRED
        await w.ready()
        assert (await refusal(drained(w.load(other)))).reason is Reason.LEASE_REQUIRED
        assert other in [lease.lease_id for lease in await w.listed()]


async def test_a_load_needs_a_lease_that_lives(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.lease()
        for lease_id in ("", "no-such-lease"):
            fault = await refusal(drained(w.load(lease_id)))
            assert fault.reason is Reason.LEASE_REQUIRED
        unknown = await refusal(drained(w.load("x", "y" * 100_000)))
        assert unknown.reason is Reason.MODEL_NOT_FOUND
        assert w.model().state == pb.MODEL_STATE_COLD


async def test_an_end_that_went_unheard_is_noticed_by_the_next_watch(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        watch = w.models.WatchModels(pb.WatchModelsRequest())
        await watch.read()  # it has begun
        async with w.generating(instance, "burst") as call:
            assert await asyncio.wait_for(call.read(), DEADLINE_S) is grpc.aio.EOF
            phases: list[int] = []
            while pb.PermitChange.PHASE_ENDED not in phases:
                event = await asyncio.wait_for(watch.read(), DEADLINE_S)
                assert isinstance(event, pb.WatchModelsResponse)
                if event.HasField("permit"):
                    phases.append(event.permit.phase)
        assert phases == [pb.PermitChange.PHASE_STARTED, pb.PermitChange.PHASE_ENDED]
        assert not w.model().instances[0].running_permit_ids
        assert w.model().state == pb.MODEL_STATE_READY


async def test_cancelling_the_load_gives_it_up(tmp_path: Path) -> None:
    async with world(tmp_path, steps=1000, step_ms=50) as w:
        lease = await w.lease()
        first, second = w.load(lease), w.load(lease)
        await first.read()
        await second.read()
        (pid,) = engine_pids()
        first.cancel()
        await until(lambda: w.toy.tenancies[0].loaders == 1, "one caller left")
        assert engine_pids() == {pid}
        second.cancel()
        assert await until(lambda: not engine_pids(), "the process is gone") < 2000
        await w.until_leases(lambda leases: not leases)
        await until(lambda: w.model().state == pb.MODEL_STATE_COLD, "COLD")


async def test_a_load_given_up_at_once_and_again(tmp_path: Path) -> None:
    async with world(tmp_path, steps=1000, step_ms=50) as w:
        for _ in range(3):
            lease = await w.lease()
            call = asyncio.create_task(anext(w.host.load("toy", lease)))
            await until(lambda: w.toy.tenancies, "it began")
            (tenancy,) = w.toy.tenancies
            tenancy.dismiss()
            tenancy.dismiss()
            await asyncio.wait_for(tenancy.over.wait(), DEADLINE_S)
            tenancy.dismiss()
            with suppress(Fault):
                await call
            assert w.model().state == pb.MODEL_STATE_COLD
            assert not engine_pids()
            assert not await w.listed()


async def test_a_new_load_waits_for_one_that_is_given_up(tmp_path: Path) -> None:
    async with world(tmp_path, steps=20, step_ms=20) as w:
        call = w.load(await w.lease())
        await call.read()
        unloading = asyncio.create_task(w.unload())
        (tenancy,) = w.toy.tenancies
        await until(lambda: tenancy.dismissed, "the unload began")
        instance = await w.ready()
        await unloading
        assert [lease.lease_id for lease in await w.listed()] == [instance.lease_id]
        assert (await refusal(drained(call))).reason is Reason.MODEL_BUSY


async def test_close_during_a_load(tmp_path: Path) -> None:
    async with world(tmp_path, steps=1000, step_ms=50) as w:
        call = w.load(await w.lease())
        await call.read()
        assert engine_pids()
        await asyncio.wait_for(w.host.close(), DEADLINE_S)
        assert (engine_pids(), await w.listed()) == (set(), [])
        fault = await refusal(drained(w.load(await w.lease())))
        assert fault.reason is Reason.SERVICE_UNAVAILABLE


async def test_a_model_that_changes_is_described_anew_and_leased_for(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.source.change(problem="The file is not there.", resident_mib=1)
        lease = await w.lease(mib=1)
        fault = await refusal(drained(w.load(lease)))
        assert (fault.reason, fault.message) == (Reason.MODEL_FAILED, "The file is not there.")
        assert w.model().state == pb.MODEL_STATE_COLD
        assert not engine_pids()

        watch: Any = w.models.WatchModels(pb.WatchModelsRequest())
        assert (await watch.read()).snapshot.models[0].footprint.resident_mib == 1
        following = asyncio.create_task(w.host.follow(0.01))
        w.source.change(problem="", resident_mib=300)
        async with asyncio.timeout(DEADLINE_S):
            while (await watch.read()).model.footprint.resident_mib != 300:
                pass
        looks = w.source.looks
        fault = await refusal(drained(w.load(lease)))
        assert fault.reason is Reason.LEASE_REQUIRED
        assert "needs 300 MiB" in fault.message
        assert not engine_pids()
        assert await drained(w.load(await w.lease(mib=300)))
        assert w.source.looks == looks == 3  # no more often than it changed

        w.source.change(resident_mib=500)
        listed = await w.models.ListModels(pb.ListModelsRequest())
        assert listed.models[0].footprint.resident_mib == 300  # what its engine lives on
        await w.unload()
        listed = await w.models.ListModels(pb.ListModelsRequest())
        assert listed.models[0].footprint.resident_mib == 500
        following.cancel()


async def test_a_measured_model_is_leased_for_as_it_was_seen(tmp_path: Path) -> None:
    async with world(tmp_path, resident_mib=300) as w:
        w.source.change(measure=True)
        await w.ready()
        await until(lambda: w.model().footprint.measured, "it is measured")
        assert w.model().footprint.resident_mib == 300
        await w.unload()
        fault = await refusal(drained(w.load(await w.lease())))
        assert (fault.reason, "needs 300 MiB" in fault.message) == (Reason.LEASE_REQUIRED, True)
        await drained(w.load(await w.lease(mib=300)))


async def test_every_line_of_an_engine_says_whose_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COHABIT_LOG", raising=False)
    async with world(tmp_path, say="what a day") as w:
        instance = await w.ready()
    shown = capfd.readouterr()
    own = [json.loads(line) for line in shown.err.splitlines() if "what a day" in line]
    assert [(line["model"], line["instance"]) for line in own] == [("toy", instance.instance_id)]
    # This process's log is not configured, so its lines are not JSON.
    (foreign,) = (line for line in shown.out.splitlines() if "what a day" in line)
    assert f"instance={instance.instance_id}" in foreign
    assert "model=toy" in foreign


async def test_engines_take_turns_at_their_ports(tmp_path: Path, unused_tcp_port: int) -> None:
    async with world(tmp_path, ports=(unused_tcp_port, unused_tcp_port)) as w:
        for _ in range(2):
            instance = await w.ready()
            assert instance.address == f"127.0.0.1:{unused_tcp_port}"
            async with w.generating(instance, "hello"):
                pass
            await w.unload()


async def test_an_engine_whose_port_was_taken_meanwhile_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlord, "is_free", lambda _host, _port: True)
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        async with world(tmp_path, ports=(port, port)) as w:
            with pytest.raises(grpc.aio.AioRpcError, match="cannot be listened on: it is in use"):
                await drained(w.load(await w.lease()))


async def test_watchers_see_a_snapshot_the_changes_and_a_pulse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting_servicer, "_HEARTBEAT_S", 0.05)
    async with world(tmp_path) as w:
        watch = w.models.WatchModels(pb.WatchModelsRequest())
        first = await watch.read()
        assert isinstance(first, pb.WatchModelsResponse)
        assert [m.state for m in first.snapshot.models] == [pb.MODEL_STATE_COLD]
        second = await asyncio.wait_for(watch.read(), DEADLINE_S)
        assert isinstance(second, pb.WatchModelsResponse)
        assert second.HasField("heartbeat")
        await w.ready()
        await w.unload()
        states: list[int] = []
        while states[-1:] != [pb.MODEL_STATE_COLD]:
            event = await asyncio.wait_for(watch.read(), DEADLINE_S)
            assert isinstance(event, pb.WatchModelsResponse)
            if event.HasField("model") and event.model.state not in states[-1:]:
                states.append(event.model.state)
        assert states == [
            pb.MODEL_STATE_LOADING,
            pb.MODEL_STATE_READY,
            pb.MODEL_STATE_DRAINING,
            pb.MODEL_STATE_COLD,
        ]


async def test_leases_are_renewed_with_what_is_in_use(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        await w.until_leases(lambda leases: leases[0].materialised_mib == 100)
        (before,) = await w.listed()
        assert before.lease_id == instance.lease_id
        await w.until_leases(lambda leases: leases[0].expires_unix_ms > before.expires_unix_ms)


async def test_leftovers_go_and_living_leases_stay(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        used, fresh = await w.lease("gone"), await w.lease("coming")
        instance = await w.ready()
        await w.broker.RenewLease(broker_pb2.RenewLeaseRequest(lease_id=used, materialised_mib=40))
        await w.until_leases(lambda leases: sum(bool(le.materialised_mib) for le in leases) == 2)
        await w.leases.release_leftovers(w.host.lease_ids)
        assert {lease.lease_id for lease in await w.listed()} == {fresh, instance.lease_id}


async def test_a_load_claims_nothing_that_it_has_not_taken_up(tmp_path: Path) -> None:
    async with world(tmp_path, silent=True) as w:
        call = w.load(await w.lease())
        await until(engine_pids, "an engine runs")
        await w.until_leases(lambda leases: leases[0].renewed_unix_ms > 0)
        (lease,) = await w.listed()
        assert lease.materialised_mib == 0
        await w.leases.release_leftovers(w.host.lease_ids)
        assert [one.lease_id for one in await w.listed()] == [lease.lease_id]
        await w.leases.release_leftovers(set)  # as a next life of the service would
        assert not await w.listed()
        call.cancel()


PARENT = """
import asyncio, sys
from pathlib import Path
from chassis import log
from tests.hosting_world import world

async def main():
    log.configure("parent")
    async with world(Path(sys.argv[1])) as w:
        await w.ready()
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_engines_die_with_their_parent(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", PARENT, str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        env=child_env() | {"PYTHONPATH": f"{ROOT}:{ROOT}/gen"},
    )  # fmt: skip
    try:
        assert parent.stdout is not None
        line = await asyncio.wait_for(parent.stdout.readline(), DEADLINE_S)
        assert line == b"ready\n"
        (engine,) = engine_pids(parent.pid)
    finally:
        parent.kill()
        await parent.wait()
    await until(lambda: not runs(engine), "the engine is gone")
