"""Settings for the next load, and descriptions on trial: hosting's part of swaps."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2 as pb
from hosting.trial import on_trial
from hosting.values import Setting
from tests.hosting_world import DEADLINE_S, Described, World, drained, refusal, world


class Tuned(Described):
    """Its footprint, and what its engine is told, may be overridden."""

    def override(self, values: Mapping[str, str]) -> None:
        if set(values) - {"resident_mib"}:
            raise Fault(Reason.INVALID_REQUEST, "No.", metadata={"param": "x"})
        mib = json.loads(values.get("resident_mib", "100"))
        setting = Setting("resident_mib", '{"type":"integer"}', str(mib))
        self.change(resident_mib=mib, overrides=dict(values), settings=(setting,))


async def override(house: World, **values: str) -> pb.Model:
    request = pb.OverrideModelRequest(key="toy", overrides=values)
    return (await house.models.OverrideModel(request, timeout=DEADLINE_S)).model


async def test_an_override_is_told_to_all_and_leaves_what_is_loaded(tmp_path: Path) -> None:
    async with world(tmp_path, described=Tuned) as house:
        await house.ready()
        call: Any = house.models.WatchModels(pb.WatchModelsRequest())
        assert (await call.read()).HasField("snapshot")
        model = await override(house, resident_mib="40")
        assert model.footprint.resident_mib == 40
        assert dict(model.overrides) == {"resident_mib": "40"}
        assert [setting.value for setting in model.settings] == ["40"]
        assert model.state == pb.MODEL_STATE_READY
        while not (told := await asyncio.wait_for(call.read(), DEADLINE_S)).model.overrides:
            assert told.HasField("model")
        assert told.model.footprint.resident_mib == 40
        call.cancel()
        await house.unload()
        # The next load goes by it: a lease that was too small before will do.
        events = await drained(house.load(await house.lease(mib=40)))
        assert events[-1].instance.state == pb.MODEL_STATE_READY
        assert (await override(house)).footprint.resident_mib == 100


async def test_a_refused_override_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, described=Tuned) as house:
        before = house.model()
        assert (await refusal(override(house, nonsense="1"))).reason is Reason.INVALID_REQUEST
        assert house.model() == before
        unknown = house.models.OverrideModel(pb.OverrideModelRequest(key="nobody"))
        assert (await refusal(unknown)).reason is Reason.MODEL_NOT_FOUND


async def test_models_without_settings_say_so(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        assert (await refusal(override(house))).reason is Reason.NOT_IMPLEMENTED
        swap = house.models.SwapModel(pb.SwapModelRequest(key="toy", path="x"))
        assert (await refusal(drained(swap))).reason is Reason.NOT_IMPLEMENTED


async def test_a_load_that_fails_on_trial_is_told_to_the_trial_alone(tmp_path: Path) -> None:
    async with world(tmp_path, described=Tuned, fail="model_failed") as house:
        with on_trial(house.toy) as trial:
            fault = await refusal(drained(house.load(await house.lease())))
            assert fault.reason is Reason.MODEL_BUSY
            assert trial.over.is_set()
            assert trial.fault is not None
            assert trial.fault.reason is Reason.MODEL_FAILED
            assert house.model().state == pb.MODEL_STATE_COLD
            assert (await refusal(override(house))).reason is Reason.MODEL_BUSY
            with pytest.raises(Fault), on_trial(house.toy):
                pass
        fault = await refusal(drained(house.load(await house.lease())))
        assert fault.reason is Reason.MODEL_FAILED
        assert house.model().state == pb.MODEL_STATE_FAILED


async def test_an_engine_that_served_on_trial_fails_like_any_other(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        with on_trial(house.toy) as trial:
            instance = await house.ready()
            tenancy = house.tenancy(instance)
            assert tenancy.engine is not None
            tenancy.engine.process.process.kill()
            await asyncio.wait_for(tenancy.over.wait(), DEADLINE_S)
            assert not trial.over.is_set()
        assert house.model().state == pb.MODEL_STATE_FAILED
