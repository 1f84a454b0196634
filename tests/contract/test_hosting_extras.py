"""Optional memory of an instance: asked for in the background, kept, released, and done without."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from cohabit.broker.v1 import broker_pb2
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting.extras import Extras
from hosting.leases import LeaseBook
from hosting.values import Extra
from tests.hosting_world import DEADLINE_S, World, drained, kill_engine, until, world

HOLDER = "test/toy+draft"


def wants(w: World, mib: int = 50) -> None:
    w.source.change(extras=(Extra("draft", mib),))


async def lease_of_extra(w: World) -> broker_pb2.Lease | None:
    return next((lease for lease in await w.listed() if lease.holder == HOLDER), None)


async def until_gone(w: World) -> None:
    await w.until_leases(lambda leases: not leases)


async def test_it_has_a_lease_of_its_own_until_the_model_is_unloaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with world(tmp_path) as w:
        wants(w)
        instance = await w.ready()
        (told,) = instance.extras
        assert (told.name, told.mib, told.why) == ("draft", 50, "")
        lease = await lease_of_extra(w)
        assert lease is not None
        assert lease.lease_id == told.lease_id != instance.lease_id
        assert (lease.granted_mib, lease.tier) == (50, common_pb2.TIER_BACKGROUND)
        assert w.host.lease_ids() == {lease.lease_id, instance.lease_id}
        await w.unload()
        assert await w.listed() == []
    assert '"there": ["draft"]' in capfd.readouterr().err


async def test_it_is_renewed_with_its_share_of_what_is_in_use(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        wants(w)
        instance = await w.ready()

        def shared(leases: list[broker_pb2.Lease]) -> bool:
            used = {lease.holder: lease.materialised_mib for lease in leases}
            return used == {"test/toy": 67, HOLDER: 33}  # of the 100 that the toy holds

        await w.until_leases(shared)
        (before,) = instance.extras
        first = await lease_of_extra(w)
        assert first is not None

        def renewed(leases: list[broker_pb2.Lease]) -> bool:
            return any(
                one.lease_id == before.lease_id and one.expires_unix_ms > first.expires_unix_ms
                for one in leases
            )

        await w.until_leases(renewed)


async def test_a_killed_engine_leaves_neither_lease(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        wants(w)
        await w.ready()
        kill_engine()
        await until_gone(w)
        assert w.model().state == pb.MODEL_STATE_FAILED


async def test_a_load_that_fails_or_is_given_up_leaves_neither_lease(tmp_path: Path) -> None:
    async with world(tmp_path, steps=1000, step_ms=20) as w:
        wants(w)
        call = w.load(await w.lease())
        await w.until_leases(lambda leases: len(leases) == 2)
        call.cancel()
        await until_gone(w)


async def test_without_room_it_is_done_without_and_nobody_goes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with world(tmp_path) as w:
        other = await w.lease("other", 870)
        wants(w)
        instance = await w.ready()
        (told,) = instance.extras
        assert (told.lease_id, told.mib) == ("", 50)
        assert "30 MiB" in told.why
        assert {lease.lease_id for lease in await w.listed()} == {other, instance.lease_id}
        assert w.model().instances[0].extras[0].why == told.why
    assert '"there": []' in capfd.readouterr().err


async def test_room_for_a_requests_peak_goes_before_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.source.change(extras=(Extra("draft", 50),), peak_transient_mib=860)
        assert not (await w.ready()).extras[0].lease_id


async def test_the_broker_is_away_and_it_is_done_without() -> None:
    book = LeaseBook("unix:/nowhere/broker.sock", "test")
    extras = Extras(book, "toy", [Extra("draft", 50)], lambda mib: mib)
    async with asyncio.timeout(DEADLINE_S):
        await extras.ask("", 0)
    assert extras.granted == ()
    assert extras.lease_ids == set()
    assert "broker" in extras.asked[0].why
    await extras.close()
    await book.close()


async def test_who_is_cancelled_while_it_asks_still_releases(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        other = await w.lease()  # so the broker is there
        extras = Extras(w.leases, "toy", [Extra("draft", 50)], lambda mib: mib)
        asking = asyncio.create_task(extras.ask("", 0))
        await asyncio.sleep(0)  # it has been sent, and nothing has come
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        await extras.close()
        assert extras.granted == ("draft",)
        assert [lease.lease_id for lease in await w.listed()] == [other]


async def test_one_that_was_lost_is_had_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        wants(w)
        instance = await w.ready()
        (told,) = instance.extras
        request = broker_pb2.ReleaseLeaseRequest(lease_id=told.lease_id)
        await w.broker.ReleaseLease(request, timeout=DEADLINE_S)

        def anew(leases: list[broker_pb2.Lease]) -> bool:
            return {one.holder for one in leases if one.lease_id != told.lease_id} >= {HOLDER}

        await w.until_leases(anew)
        assert w.model().state == pb.MODEL_STATE_READY


async def test_leftovers_of_an_earlier_life_are_released(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        lease_id = await w.lease("toy+draft", 50)
        await w.leases.adopt(lease_id, 10)
        await w.leases.release_leftovers(w.host.lease_ids)
        assert await w.listed() == []


async def test_what_guessing_comes_to_is_told_and_added_up(tmp_path: Path) -> None:
    def counted(what: str) -> float:
        name = f"cohabit_speculation_{what}_total"
        return REGISTRY.get_sample_value(name, {"model": "guesser"}) or 0.0

    async with world(tmp_path, key="guesser", guesses=True) as w:
        await w.ready("guesser")
        told = w.model("guesser").instances[0].speculation
        assert told.drafted_tokens == 3 * told.saved_calls > 0
        assert counted("drafted_tokens") == told.drafted_tokens
        assert counted("accepted_tokens") == told.accepted_tokens
        assert counted("saved_calls") == told.saved_calls
        kill_engine()
        await until(lambda: not w.model("guesser").instances, "it is gone")
        before = counted("saved_calls")
        await drained(w.load(await w.lease("guesser"), "guesser"))
        assert counted("saved_calls") > before  # an engine that begins anew takes nothing back


async def test_who_does_not_guess_tells_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        assert not instance.HasField("speculation")
        assert not instance.extras
        assert not w.model().instances[0].HasField("speculation")
