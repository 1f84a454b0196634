"""SchedulerService over the wire: its process, with a real broker and real simulated models."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from chassis.channel import call_metadata, open_channel
from chassis.errors import Reason
from chassis.process import child_env
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc as rpc
from cohabit.simulated.v1 import simulated_pb2, simulated_pb2_grpc
from tests.hosting_world import DEADLINE_S, drained, refusal

if TYPE_CHECKING:
    Scheduler = rpc.SchedulerServiceAsyncStub

CONFIG = """
run_dir: run
state_dir: state
broker:
  {device: simulated, capacity_mib: 1000, floor_mib: {paid: 0, sub: 0, free: 0, background: 0}}
scheduler: {permits: 2, linger_s: 0, lanes: {alone: {cost: all}}}
simulated:
  models:
    image: {kind: diffusion, lane: image, resident_mib: 400, load_s: 0.1, work_s: 60, places: 4}
    solo: {kind: diffusion, lane: alone, resident_mib: 100, load_s: 0.1, work_s: 60, places: 4}
    huge: {kind: diffusion, lane: image, resident_mib: 2000}
    lite: {kind: language, lane: chat, family: twins, resident_mib: 300, context_tokens: 100}
    full: {kind: language, lane: chat, family: twins, resident_mib: 700, context_tokens: 900}
"""


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The three services, until the last test here has run; each test leaves them at rest."""
    folder = tmp_path_factory.mktemp("s")
    config = folder / "cohabit.yaml"
    config.write_text(CONFIG)
    with ExitStack() as stack:
        for name in ("broker", "simulated", "scheduler"):
            stack.enter_context(_process(f"services.{name}", config))
        yield folder / "run"


@contextmanager
def _process(module: str, config: Path) -> Iterator[None]:
    command = [sys.executable, "-P", "-m", module, "--config", str(config)]
    process = subprocess.Popen(command, env=child_env())
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


@pytest.fixture
async def scheduler(sockets: Path) -> AsyncIterator["Scheduler"]:
    """Its stub, once it has heard of every model."""
    async with open_channel(f"unix:{sockets}/scheduler.sock") as channel:
        stub: rpc.SchedulerServiceAsyncStub = rpc.SchedulerServiceStub(channel)
        await status_in(stub, lambda status: status.reconciled)
        yield stub
        await status_in(stub, lambda status: not (status.permits_in_use or status.holds))


async def status_in(scheduler: "Scheduler", wanted: Any) -> pb.Status:
    """The status, asked for at every change until it is as `wanted`: watchers are told a little
    later, all the same."""
    watch = scheduler.WatchStatus(pb.WatchStatusRequest(), wait_for_ready=True)
    async with asyncio.timeout(DEADLINE_S):
        async for _ in watch:
            status = (await scheduler.GetStatus(pb.GetStatusRequest())).status
            if wanted(status):
                watch.cancel()
                return status
    raise AssertionError("the watch has ended")


@asynccontextmanager
async def asking(scheduler: "Scheduler", model: str, **fields: Any) -> AsyncIterator[Any]:
    """A stream of Admit, closed at the end of the block."""
    call = scheduler.Admit(pb.AdmitRequest(model=model, **fields))
    try:
        yield call
    finally:
        call.cancel()


async def next_of(call: Any) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        return await call.read()


async def granted(call: Any) -> pb.AdmitResponse.Granted:
    """The grant, whatever is told before it."""
    while not (event := await next_of(call)).HasField("granted"):
        pass
    grant = event.granted
    assert isinstance(grant, pb.AdmitResponse.Granted)
    return grant


async def test_a_cold_model_is_loaded_and_runs_under_the_permit(scheduler: "Scheduler") -> None:
    async with asking(scheduler, "image", request_id="r-1") as call:
        first = await next_of(call)
        assert first.queued.position == 0
        assert first.queued.resume_token
        grant = await granted(call)
        assert (grant.model_key, grant.transient_lease_id) == ("image", "")
        async with open_channel(grant.address) as channel:
            stub: simulated_pb2_grpc.SimulatedServiceAsyncStub = (
                simulated_pb2_grpc.SimulatedServiceStub(channel)
            )
            request = simulated_pb2.RunRequest(model="image", work_ms=1)
            run = stub.Run(request, metadata=call_metadata(grant.permit_id))
            assert (await drained(run))[-1].done.model == "image"
        status = await status_in(scheduler, lambda status: status.running)
        assert [(one.request_id, one.model_key) for one in status.running] == [("r-1", "image")]


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"model": ""}, "INVALID_ARGUMENT", Reason.INVALID_REQUEST),
        ({"lane": "nowhere"}, "INVALID_ARGUMENT", Reason.INVALID_REQUEST),
        ({"tier": 9}, "INVALID_ARGUMENT", Reason.INVALID_REQUEST),
        ({"fairness_key": "k" * 129}, "INVALID_ARGUMENT", Reason.INVALID_REQUEST),
        ({"resume_token": "1 FREE image.x"}, "INVALID_ARGUMENT", Reason.INVALID_REQUEST),
        (
            {"preferred_transient_mib": 1, "minimum_transient_mib": 2},
            "INVALID_ARGUMENT",
            Reason.INVALID_REQUEST,
        ),
        ({"model": "nobody"}, "NOT_FOUND", Reason.MODEL_NOT_FOUND),
        ({"parent_permit_id": "gone"}, "FAILED_PRECONDITION", Reason.PERMIT_REQUIRED),
        ({"model": "huge"}, "FAILED_PRECONDITION", Reason.NEVER_FITS),
        ({"model": "solo", "try_acquire": True}, "RESOURCE_EXHAUSTED", Reason.SATURATED),
    ],
)
async def test_what_is_refused(
    scheduler: "Scheduler", fields: dict[str, Any], code: str, reason: Reason
) -> None:
    async with asking(scheduler, **{"model": "image", **fields}) as call:
        fault = await refusal(drained(call))
        assert (fault.reason, (await call.code()).name) == (reason, code)


async def test_a_token_keeps_the_place(scheduler: "Scheduler") -> None:
    async with asking(scheduler, "solo") as runs, asking(scheduler, "solo") as head:
        await granted(runs)
        await next_of(head)
        async with asking(scheduler, "solo") as first:
            token = (await next_of(first)).queued.resume_token
        async with asking(scheduler, "solo") as second:
            await next_of(second)
            async with asking(scheduler, "solo", resume_token=token) as again:
                await next_of(again)
                runs.cancel()
                await granted(head)
                head.cancel()
                grant = await granted(again)
                assert grant.queue_wait_ms > 0
                waiting = await status_in(scheduler, lambda status: status.permits_in_use == 2)
                assert sum(tier.waiting for tier in waiting.tiers) == 1


async def test_a_token_is_good_for_its_model_and_tier_alone(scheduler: "Scheduler") -> None:
    async with asking(scheduler, "image") as call:
        token = (await granted(call)).resume_token
    others: list[dict[str, Any]] = [
        {"model": "solo"},
        {"tier": common_pb2.TIER_PAID},
        {"resume_token": f"{token}0"},
    ]
    for other in others:
        wanted: dict[str, Any] = {"model": "image", "resume_token": token, **other}
        fault = await refusal(drained(scheduler.Admit(pb.AdmitRequest(**wanted))))
        assert fault.reason is Reason.INVALID_REQUEST


async def test_a_held_lane_drains_and_lets_nobody_in(scheduler: "Scheduler") -> None:
    async with asking(scheduler, "image") as before:
        await granted(before)
        hold = scheduler.Hold(pb.HoldRequest(lane="image", hold_s=30, holder="trainer"))
        told = await next_of(hold)
        assert (told.held, told.running) == (False, 1)
        before.cancel()
        told = await next_of(hold)
        assert (told.held, told.running) == (True, 0)
        async with asking(scheduler, "image") as late:
            assert (await next_of(late)).HasField("queued")
            (held,) = (await status_in(scheduler, lambda status: status.holds)).holds
            assert (held.lane, held.holder, held.expires_unix_ms) == (
                "image",
                "trainer",
                told.expires_unix_ms,
            )
            release = pb.ReleaseHoldRequest(lane="image", holder="trainer")
            await scheduler.ReleaseHold(release, timeout=DEADLINE_S)
            assert await next_of(hold) is grpc.aio.EOF
            await granted(late)
        await scheduler.ReleaseHold(release, timeout=DEADLINE_S)


async def test_a_hold_ends_with_its_stream(scheduler: "Scheduler") -> None:
    hold = scheduler.Hold(pb.HoldRequest(lane="image", hold_s=30, holder="trainer"))
    assert (await next_of(hold)).held
    hold.cancel()
    async with asking(scheduler, "image") as call:
        await granted(call)


@pytest.mark.parametrize(
    "fields", [{"hold_s": 0}, {"holder": ""}, {"lane": ""}, {"lane": "nowhere"}]
)
async def test_a_hold_that_is_wrong(scheduler: "Scheduler", fields: dict[str, Any]) -> None:
    request = pb.HoldRequest(**{"lane": "image", "hold_s": 1, "holder": "trainer", **fields})
    assert (await refusal(drained(scheduler.Hold(request)))).reason is Reason.INVALID_REQUEST


async def test_models_come_by_hand_and_a_plan_says_who_goes(scheduler: "Scheduler") -> None:
    for key in ("solo", "image"):
        events = await drained(scheduler.LoadModel(pb.LoadModelRequest(model=key)))
        assert events[-1].state == models_pb2.MODEL_STATE_READY
    request = pb.PlanResidencyRequest(model="full")
    plan = await scheduler.PlanResidency(request, timeout=DEADLINE_S)
    assert plan.feasible
    assert [going.model_key for going in plan.evictions] == ["image"]
    assert plan.needed_mib == 700
    for unknown in ("nobody", "twins"):
        request = pb.PlanResidencyRequest(model=unknown)
        assert (await refusal(scheduler.PlanResidency(request))).reason is Reason.MODEL_NOT_FOUND
    unload = pb.UnloadModelRequest(model="image")
    await scheduler.UnloadModel(unload, timeout=DEADLINE_S)
    listed = await scheduler.ListModels(pb.ListModelsRequest(), timeout=DEADLINE_S)
    states = {model.key: model.state for model in listed.models}
    assert states["image"] == models_pb2.MODEL_STATE_COLD


async def test_a_running_model_is_unloaded_by_force_alone(scheduler: "Scheduler") -> None:
    async with asking(scheduler, "image") as call:
        await granted(call)
        unload = pb.UnloadModelRequest(model="image", drain_ms=1)
        assert (await refusal(scheduler.UnloadModel(unload))).reason is Reason.MODEL_BUSY
