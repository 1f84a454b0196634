"""The scheduler before callers who are careless and model services that tell nonsense."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from pydantic import ValidationError

from chassis.channel import open_channel
from chassis.errors import Reason
from chassis.server import Server, service_name
from chassis.signing import Signer
from chassis.simulated_card import SimulatedCard
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc as rpc
from hosting.leases import LeaseBook
from services.broker.config import BrokerConfig
from services.broker.device_simulated import SimulatedDevice
from services.broker.journal import Journal
from services.broker.servicer import BrokerServicer
from services.broker.shell import Shell
from services.broker.warming import Warmer
from services.scheduler import status
from services.scheduler.clients import (
    Broker,
    Changed,
    Engines,
    Everything,
    Removed,
    Report,
    Worker,
)
from services.scheduler.config import SchedulerConfig
from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.settings import Settings
from services.scheduler.servicer import SchedulerServicer
from services.scheduler.settings import lane_table
from services.scheduler.shell import SchedulerShell
from services.scheduler.told import Told

if TYPE_CHECKING:
    Stub = rpc.SchedulerServiceAsyncStub

DEVICE_MIB = 10_000
BEYOND_ALL = 2**64 - 1


class Teller(models_pb2_grpc.ModelServiceServicer):
    """A model service that tells what it is told to tell."""

    def __init__(self, *models: models_pb2.Model) -> None:
        self.models = models

    async def WatchModels(
        self, request: models_pb2.WatchModelsRequest, context: Any
    ) -> AsyncIterator[models_pb2.WatchModelsResponse]:
        snapshot = models_pb2.WatchModelsResponse.Snapshot(models=self.models)
        yield models_pb2.WatchModelsResponse(snapshot=snapshot)
        await asyncio.get_running_loop().create_future()

    async def ListModels(
        self, request: models_pb2.ListModelsRequest, context: Any
    ) -> models_pb2.ListModelsResponse:
        return models_pb2.ListModelsResponse(models=self.models)

    async def LoadModel(
        self, request: models_pb2.LoadModelRequest, context: Any
    ) -> AsyncIterator[models_pb2.LoadModelResponse]:
        yield models_pb2.LoadModelResponse()

    async def UnloadModel(
        self, request: models_pb2.UnloadModelRequest, context: Any
    ) -> models_pb2.UnloadModelResponse:
        return models_pb2.UnloadModelResponse()

    async def OverrideModel(
        self, request: models_pb2.OverrideModelRequest, context: Any
    ) -> models_pb2.OverrideModelResponse:
        return models_pb2.OverrideModelResponse()

    async def SwapModel(
        self, request: models_pb2.SwapModelRequest, context: Any
    ) -> AsyncIterator[models_pb2.SwapModelResponse]:
        yield models_pb2.SwapModelResponse()


def model(
    key: str,
    state: "models_pb2.ModelState.ValueType",
    resident_mib: int,
    service: str = "",
    **of_instance: Any,
) -> models_pb2.Model:
    told = models_pb2.Model(key=key, lane="chat", state=state, max_instances=1, service=service)
    told.footprint.resident_mib = resident_mib
    if state == models_pb2.MODEL_STATE_READY:
        told.instances.add(
            instance_id=f"{key}-1", state=state, address="unix:/nowhere", places=2, **of_instance
        )
    return told


@asynccontextmanager
async def scheduler(tmp_path: Path, *models: models_pb2.Model) -> AsyncIterator["Stub"]:
    """A scheduler beside a real broker, and a model service that has these models."""
    own = BrokerConfig.model_validate({"device": "simulated", "capacity_mib": DEVICE_MIB})
    card = SimulatedCard(tmp_path / "sim0.card")
    lending = Shell(own, [SimulatedDevice(card, DEVICE_MIB, [], 0)], Journal(tmp_path / "state"))
    lending.start()
    warmer = Warmer(tmp_path, own.warm_floor_of)
    broker = Server([service_name(broker_pb2, "BrokerService")], drain_s=1.0)
    broker.closing.push_async_callback(lending.close)
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(
        BrokerServicer(lending, warmer, own), broker.grpc
    )
    teller = Server([service_name(models_pb2, "ModelService")], drain_s=0.1)
    models_pb2_grpc.add_ModelServiceServicer_to_server(Teller(*models), teller.grpc)

    settings = Settings(permits=4, lane_of=lane_table(SchedulerConfig()))
    shell = SchedulerShell(
        SchedulerCore(settings),
        Broker(await broker.start(f"unix:{tmp_path}/b.sock")),
        [Worker("llm", await teller.start(f"unix:{tmp_path}/m.sock"))],
    )
    server = Server([service_name(pb, "SchedulerService")], drain_s=0.1)
    rpc.add_SchedulerServiceServicer_to_server(
        SchedulerServicer(shell, Signer(b"key"), settings, frozenset()), server.grpc
    )
    target = await server.start(f"unix:{tmp_path}/s.sock")
    shell.start(reconcile_s=10.0)
    try:
        await asyncio.wait_for(shell.ready.wait(), 10)
        async with open_channel(target) as channel:
            yield rpc.SchedulerServiceStub(channel)
    finally:
        await server.stop()
        await shell.close()
        await teller.stop()
        await broker.stop()


async def refused(call: Any) -> Reason:
    """Why a stream ends."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return fault_of(error, "scheduler").reason
    raise AssertionError("it was not refused")


READY, COLD = models_pb2.MODEL_STATE_READY, models_pb2.MODEL_STATE_COLD


@pytest.mark.parametrize("name", ["", "m" * 129])
async def test_a_name_that_no_model_can_have_is_refused(tmp_path: Path, name: str) -> None:
    async with scheduler(tmp_path, model("m", COLD, 100)) as stub:
        load = stub.LoadModel(pb.LoadModelRequest(model=name), timeout=10)
        assert await refused(load) is Reason.INVALID_REQUEST
        run = stub.Admit(pb.AdmitRequest(model=name), timeout=10)
        assert await refused(run) is Reason.INVALID_REQUEST


@pytest.mark.parametrize("need_mib", [DEVICE_MIB - 4000, BEYOND_ALL])
async def test_what_does_not_fit_beside_its_own_model_never_fits(
    tmp_path: Path, need_mib: int
) -> None:
    """The device could lend it, were its model not there, which it needs to run."""
    lent = broker_pb2.AcquireLeaseRequest(
        holder="llm/m", kind=broker_pb2.LEASE_KIND_RESIDENT, preferred_mib=4000
    )
    async with scheduler(tmp_path, model("m", READY, 4000)) as stub:
        async with open_channel(f"unix:{tmp_path}/b.sock") as channel:
            await broker_pb2_grpc.BrokerServiceStub(channel).AcquireLease(lent, timeout=10)
        ask = pb.AdmitRequest(model="m", preferred_transient_mib=need_mib)
        assert await refused(stub.Admit(ask, timeout=10)) is Reason.NEVER_FITS


async def test_a_model_that_claims_all_memory_there_could_be_never_fits(tmp_path: Path) -> None:
    vast = [model(key, COLD, BEYOND_ALL) for key in ("m", "n")]
    for each in vast:
        each.footprint.peak_transient_mib = BEYOND_ALL
    async with scheduler(tmp_path, *vast) as stub:
        calls = [stub.Admit(pb.AdmitRequest(model=each.key), timeout=10) for each in vast]
        reasons = await asyncio.gather(*map(refused, calls))
        assert set(reasons) == {Reason.NEVER_FITS}
        assert (await stub.GetStatus(pb.GetStatusRequest(), timeout=10)).status.models


async def test_a_load_that_took_for_ever_leaves_the_status_readable(tmp_path: Path) -> None:
    async with scheduler(tmp_path, model("m", READY, 10, load_ms=BEYOND_ALL)) as stub:
        told = (await stub.GetStatus(pb.GetStatusRequest(), timeout=10)).status.models
        assert 0 < told[0].reload_ms < BEYOND_ALL


async def test_a_model_of_two_services_is_that_of_the_first() -> None:
    """The other's telling that it has it, changed it or has it no more changes nothing."""
    own = model("m", READY, 10)
    first, second = Worker("first", "unix:/nowhere/1"), Worker("second", "unix:/nowhere/2")
    told = Told([first, second])

    def tell(worker: str, report: Report) -> bool:
        if (counts := told.own(worker, report)) is not None:
            told.take(worker, counts)
        return counts is not None

    assert tell("first", Everything((own,), {}))
    assert tell("second", Everything((model("m", COLD, 99), model("n", COLD, 1)), {}))
    assert not tell("second", Changed(model("m", COLD, 99)))
    assert not tell("second", Removed("m"))
    assert told.hosts() == {"m": "first", "n": "second"}
    assert told.models(silent=()) == [own, model("n", COLD, 1, service="second")]
    assert tell("first", Removed("m"))
    assert tell("second", Changed(model("m", COLD, 99)))
    assert told.worker_of("m") is second
    await first.close()
    await second.close()


async def test_an_engine_that_does_not_answer_is_not_forgotten_for_many_others(
    tmp_path: Path,
) -> None:
    """However many engines are spoken to meanwhile, who asks one hears from it in the end."""
    answer = asyncio.Event()

    class Slow(models_pb2_grpc.EngineServiceServicer):
        async def RevokePermit(
            self, request: models_pb2.RevokePermitRequest, context: Any
        ) -> models_pb2.RevokePermitResponse:
            await answer.wait()
            return models_pb2.RevokePermitResponse(running=True)

        async def WatchEngine(
            self, request: models_pb2.WatchEngineRequest, context: Any
        ) -> AsyncIterator[models_pb2.WatchEngineResponse]:
            yield models_pb2.WatchEngineResponse()

        async def DrainEngine(
            self, request: models_pb2.DrainEngineRequest, context: Any
        ) -> models_pb2.DrainEngineResponse:
            return models_pb2.DrainEngineResponse()

    server = Server([service_name(models_pb2, "EngineService")], drain_s=0.1)
    models_pb2_grpc.add_EngineServiceServicer_to_server(Slow(), server.grpc)
    target = await server.start(f"unix:{tmp_path}/e.sock")
    engines = Engines()

    async def ask(address: str) -> bool:
        return await engines.revoke(address, "p", only_if_not_started=True)

    slow = asyncio.create_task(ask(target))
    gone = [ask(f"unix:{tmp_path}/{number}.sock") for number in range(200)]
    assert not any(await asyncio.gather(*gone))  # nobody listens there: they have ended
    answer.set()
    assert await slow
    await engines.close()
    await server.stop()


async def test_two_hundred_watchers_cost_as_much_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    make = status.status_message

    def counting(shell: SchedulerShell, now_ms: int) -> pb.Status:
        nonlocal made
        made += 1
        return make(shell, now_ms)

    async with scheduler(tmp_path, model("m", READY, 10)) as stub:
        monkeypatch.setattr(status, "status_message", counting)
        watches = [stub.WatchStatus(pb.WatchStatusRequest()) for _ in range(200)]
        await asyncio.wait_for(asyncio.gather(*[watch.read() for watch in watches]), 20)
        assert made < 50
        run = stub.Admit(pb.AdmitRequest(model="m"), timeout=20)

        async def see(watch: Any) -> None:
            while (await watch.read()).status.permits_in_use != 1:
                pass

        await asyncio.wait_for(asyncio.gather(*map(see, watches)), 20)
        for watch in watches:
            watch.cancel()
        run.cancel()


@pytest.mark.parametrize(
    "said",
    [
        {"max_swap_delay_s": math.inf},
        {"use_within_s": 1e300},
        {"background_quiet_s": math.inf},
        {"fairness": {"weights": {"k": math.inf}}},
        {"fairness": {"weights": {"k": 1e-308}}},
        {"residency": {"models": {"m": {"eviction_cost": math.inf}}}},
    ],
)
def test_the_scheduler_is_not_told_what_it_could_not_count_with(said: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"finite|less than|greater than"):
        SchedulerConfig.model_validate(said)


@pytest.mark.parametrize(
    "said",
    [
        {"capacity_mib": 2**70},
        {"lease_ttl_s": 1e-9},
        {"lease_ttl_s": math.inf},
        {"foreign": [{"name": "game", "mib": 1, "at_s": math.inf}]},
    ],
)
def test_the_broker_is_not_told_what_it_could_not_count_with(said: dict[str, Any]) -> None:
    whole = {"device": "simulated", "capacity_mib": 1} | said
    with pytest.raises(ValidationError, match=r"finite|less than|greater than"):
        BrokerConfig.model_validate(whole)


async def test_a_short_lease_is_renewed_before_it_ends(tmp_path: Path) -> None:
    """Whatever the broker is told of how long leases last, who holds one keeps it."""
    wish = broker_pb2.AcquireLeaseRequest(
        holder="toy/m", kind=broker_pb2.LEASE_KIND_RESIDENT, preferred_mib=100, ttl_ms=400
    )
    async with scheduler(tmp_path), open_channel(f"unix:{tmp_path}/b.sock") as channel:
        broker: broker_pb2_grpc.BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(channel)
        lease = (await broker.AcquireLease(wish, timeout=10)).lease
        book = LeaseBook(f"unix:{tmp_path}/b.sock", "toy")
        lost: list[broker_pb2.Lease] = []
        keeping = asyncio.create_task(book.keep(lease, lambda: 100, lost.append, asyncio.Event()))
        async with asyncio.timeout(10):
            while lease.renewed_unix_ms < lease.granted_unix_ms + 3 * 400:
                (lease,) = (await broker.ListLeases(broker_pb2.ListLeasesRequest())).leases
        keeping.cancel()
        await asyncio.wait([keeping])
        await book.close()
        assert not lost
