"""Models that come, change and go while their service runs: the list is another."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from chassis.errors import Reason
from cohabit.models.v1 import models_pb2 as pb
from hosting.trial import on_trial
from hosting.values import Kind, ModelSpec
from tests.hosting_world import DEADLINE_S, Described, World, drained, refusal, until, world


def described(key: str = "toy", **engine: Any) -> Described:
    return Described(ModelSpec(key, Kind.LANGUAGE, "chat", 100, engine=engine))


async def relist(w: World, *keys: str, **anew: Described) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await w.host.relist(keys or tuple(anew), anew)


async def watching(w: World) -> Any:
    call: Any = w.models.WatchModels(pb.WatchModelsRequest())
    assert (await call.read()).HasField("snapshot")
    return call


async def told(call: Any) -> pb.WatchModelsResponse:
    event = await asyncio.wait_for(call.read(), DEADLINE_S)
    assert isinstance(event, pb.WatchModelsResponse)
    return event


async def test_a_new_model_is_told_of_and_can_be_loaded(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        call = await watching(w)
        await relist(w, "toy", "other", other=described("other"))
        event = await told(call)
        assert (event.model.key, event.model.state) == ("other", pb.MODEL_STATE_COLD)
        call.cancel()
        assert (await w.ready("other")).state == pb.MODEL_STATE_READY
        await w.unload("other")


async def test_a_removed_model_finishes_what_runs_and_is_gone(tmp_path: Path) -> None:
    async with world(tmp_path, instances=2) as w:
        instance = await w.ready()
        call = await watching(w)
        async with w.generating(instance, "hold") as running:
            await relist(w, "other", other=described("other"))
            events = []
            while (event := await told(call)).model.key != "other":
                events.append(event)
            models = [event.model for event in events if event.HasField("model")]
            states = [model.state for model in models if model.removed]
            assert states == [pb.MODEL_STATE_READY, pb.MODEL_STATE_DRAINING]
            # It takes nothing new, though there might be a second instance.
            fault = await refusal(drained(w.load(await w.lease(mib=100))))
            assert fault.reason is Reason.MODEL_NOT_FOUND
            assert "taken out of the configuration" in fault.message
            assert w.permits == {"permit-hold"}
            running.cancel()  # the request is over
        while not (event := await told(call)).removed_key:
            assert event.WhichOneof("event") in ("model", "permit")
        assert event.removed_key == "toy"
        call.cancel()
        assert [model.key for model in w.host.messages()] == ["other"]
        missing = await refusal(w.unload("toy"))
        assert missing.reason is Reason.MODEL_NOT_FOUND
        assert "it has: other" in missing.message


async def test_a_cold_model_that_is_removed_takes_no_load(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        lease_id = await w.lease()
        await relist(w, "other", other=described("other"))
        fault = await refusal(drained(w.load(lease_id)))
        assert fault.reason is Reason.MODEL_NOT_FOUND


async def test_a_load_in_progress_is_given_up(tmp_path: Path) -> None:
    async with world(tmp_path, load_s=30) as w:
        call = w.load(await w.lease())
        await asyncio.wait_for(call.read(), DEADLINE_S)
        await relist(w, "other", other=described("other"))
        assert (await refusal(drained(call))).reason is Reason.MODEL_BUSY
        await until(lambda: [m.key for m in w.host.messages()] == ["other"], "it is gone")
        assert not await w.listed()


async def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    async with world(tmp_path, removal_drain_s=0.2) as w:
        async with w.generating(await w.ready(), "hold") as running:
            await relist(w, "other", other=described("other"))
            assert (await refusal(drained(running))).reason is Reason.MODEL_EVICTED
        await until(lambda: len(w.host.messages()) == 1, "it is gone")


async def test_a_model_that_is_configured_again_serves_on(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        async with w.generating(instance, "hold"):
            await relist(w, "other", other=described("other"))
            await until(lambda: w.model().state == pb.MODEL_STATE_DRAINING, "it drains")
            await relist(w, "toy", toy=Described(w.source.spec))
            await until(lambda: w.model().state == pb.MODEL_STATE_READY, "it serves")
            assert not w.model().removed
            assert not w.model().stale
            async with w.generating(instance, "hello"):
                pass
        assert w.model().instances[0].instance_id == instance.instance_id


async def test_a_loaded_model_that_changes_is_another_from_its_next_load_on(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        instance = await w.ready()
        new = described("toy")
        new.change(resident_mib=40, lane="slow")
        await relist(w, "toy", toy=new)
        assert (w.model().lane, w.model().stale) == ("chat", True)
        async with w.generating(instance, "hello"):
            pass
        await w.unload()
        events = await drained(w.load(await w.lease(mib=40)))
        assert events[-1].instance.state == pb.MODEL_STATE_READY
        assert (w.model().lane, w.model().stale) == ("slow", False)


async def test_a_cold_model_that_changes_is_another_at_once(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        call = await watching(w)
        new = described("toy")
        new.change(lane="slow")
        await relist(w, "toy", toy=new)
        event = await told(call)
        assert (event.model.lane, event.model.stale) == ("slow", False)
        call.cancel()


async def test_a_change_that_is_taken_back_leaves_nothing_stale(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.ready()
        new = described("toy")
        new.change(lane="slow")
        await relist(w, "toy", toy=new)
        assert w.model().stale
        await relist(w, "toy", toy=Described(w.source.spec))
        assert not w.model().stale


class Tuned(Described):
    def override(self, values: Mapping[str, str]) -> None:
        self.change(overrides=dict(values))


async def test_an_override_of_a_model_that_has_changed_is_over_its_new_configuration(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, described=Tuned) as w:
        await w.ready()
        new = Tuned(w.source.spec)
        new.change(lane="slow")
        await relist(w, "toy", toy=new)
        request = pb.OverrideModelRequest(key="toy", overrides={"x": "1"})
        model = (await w.models.OverrideModel(request, timeout=DEADLINE_S)).model
        assert (model.lane, dict(model.overrides), model.stale) == ("slow", {"x": "1"}, True)
        await w.unload()
        assert dict(w.model().overrides) == {"x": "1"}
        assert not w.model().stale


async def test_a_model_on_trial_changes_when_that_is_over(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        new = described("toy")
        new.change(lane="slow")
        with on_trial(w.toy):
            await relist(w, "toy", toy=new)
            assert w.model().lane == "chat"
        await w.host.refresh()
        assert w.model().lane == "slow"


async def test_a_change_that_comes_to_the_same_waits_for_a_trial_too(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        before, new = w.toy.source, Described(w.source.spec)
        with on_trial(w.toy):
            await relist(w, "toy", toy=new)
            assert w.toy.source is before
        await w.host.refresh()
        assert w.toy.source is new


class Slow(Described):
    """Its description takes until it is told to end."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.end = threading.Event()

    def describe(self) -> ModelSpec:
        described = super().describe()
        assert self.looks == 1 or self.end.wait(DEADLINE_S)
        return described


async def test_a_trial_that_begins_while_a_change_is_described_comes_first(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        new = Slow(replace(w.source.spec, lane="slow"))
        listing = asyncio.create_task(relist(w, "toy", toy=new))
        await until(lambda: new.looks == 2, "it is described to take over")
        with on_trial(w.toy):
            new.end.set()
            await listing
            assert w.model().lane == "chat"
        await w.host.refresh()
        assert w.model().lane == "slow"


async def test_a_service_that_stops_waits_for_nobody_who_leaves(tmp_path: Path) -> None:
    async with (
        world(tmp_path, removal_drain_s=600) as w,
        w.generating(await w.ready(), "hold") as running,
    ):
        await relist(w, "other", other=described("other"))
        async with asyncio.timeout(DEADLINE_S):
            await w.host.close()
        assert (await refusal(drained(running))).reason is Reason.MODEL_EVICTED
