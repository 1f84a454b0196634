"""The commands of residency as processes, against a scheduler and a broker with canned answers.

Real sockets, real terminals (a pty) where the command behaves otherwise on one.
"""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chassis.errors import Fault, Reason, not_implemented
from chassis.server import Server
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1.common_pb2 import TIER_PAID
from cohabit.models.v1 import models_pb2
from cohabit.models.v1.models_pb2 import (
    MODEL_STATE_COLD,
    MODEL_STATE_LOADING,
    MODEL_STATE_READY,
)
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc as rpc
from tests.command_kit import Command

DEADLINE_S = 30.0
COLUMNS = 120
_BOUND = 16


def status(*names: str) -> pb.Status:
    said = pb.Status(permits_total=4, reconciled=True)
    for name in names:
        said.models.add(model_key=name, state=MODEL_STATE_READY, resident_mib=100)
    return said


@dataclass
class Scheduler(rpc.SchedulerServiceServicer):
    """Says what a test puts into it."""

    status: pb.Status = field(default_factory=lambda: status("qwen3", "sdxl"))
    streams: bool = True
    watched: "asyncio.Queue[pb.Status]" = field(default_factory=lambda: asyncio.Queue(_BOUND))
    loads: "asyncio.Queue[pb.LoadModelResponse | Fault | None]" = field(
        default_factory=lambda: asyncio.Queue(_BOUND)
    )
    plan: pb.PlanResidencyResponse | Fault = field(default_factory=pb.PlanResidencyResponse)
    unload: Fault | None = None
    asked: list[Any] = field(default_factory=list)
    given_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def GetStatus(self, request: Any, context: Any) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(status=self.status)

    async def WatchStatus(
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.WatchStatusResponse]:
        if not self.streams:
            raise not_implemented("SchedulerService.WatchStatus")
        yield pb.WatchStatusResponse(status=self.status)
        while True:
            yield pb.WatchStatusResponse(status=await self.watched.get())

    async def ListModels(self, request: Any, context: Any) -> pb.ListModelsResponse:
        models = [models_pb2.Model(key=model.model_key) for model in self.status.models]
        return pb.ListModelsResponse(models=models)

    async def LoadModel(self, request: Any, context: Any) -> AsyncIterator[pb.LoadModelResponse]:
        self.asked.append(request)
        try:
            while (said := await self.loads.get()) is not None:
                if isinstance(said, Fault):
                    raise said
                yield said
        except asyncio.CancelledError:
            self.given_up.set()
            raise

    async def UnloadModel(self, request: Any, context: Any) -> pb.UnloadModelResponse:
        self.asked.append(request)
        if self.unload is not None:
            raise self.unload
        return pb.UnloadModelResponse()

    async def PlanResidency(self, request: Any, context: Any) -> pb.PlanResidencyResponse:
        self.asked.append(request)
        if isinstance(self.plan, Fault):
            raise self.plan
        return self.plan


class Broker(broker_pb2_grpc.BrokerServiceServicer):
    """One card, one lease."""

    async def ListLeases(self, request: Any, context: Any) -> broker_pb2.ListLeasesResponse:
        lease = broker_pb2.Lease(holder="llm/qwen3", device="gpu0", granted_mib=100)
        return broker_pb2.ListLeasesResponse(leases=[lease])

    async def GetDeviceMemory(
        self, request: Any, context: Any
    ) -> broker_pb2.GetDeviceMemoryResponse:
        device = broker_pb2.DeviceMemory(
            device="gpu0", reachable=True, total_mib=1_000, free_mib=900, unmaterialised_mib=0
        )
        return broker_pb2.GetDeviceMemoryResponse(devices=[device])


@dataclass
class House:
    """The two servers, and the command that is led to them."""

    command: Command
    scheduler: Scheduler
    servers: dict[str, Server]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    config = tmp_path / "cohabit.yaml"
    config.write_text("run_dir: r\n")
    scheduler = Scheduler()  # type: ignore[abstract]
    servers = {"scheduler": Server((), drain_s=0.0), "broker": Server((), drain_s=0.0)}
    rpc.add_SchedulerServiceServicer_to_server(scheduler, servers["scheduler"].grpc)
    broker = Broker()  # type: ignore[abstract]
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(broker, servers["broker"].grpc)
    (tmp_path / "r").mkdir()
    for name, server in servers.items():
        await server.start(f"unix:{tmp_path}/r/{name}.sock")
    yield House(Command(config), scheduler, servers)
    for server in servers.values():
        await server.stop()


async def test_models_once_and_as_json(house: House) -> None:
    code, out, err = await house.command.run("models")
    assert (code, err) == (0, "")
    assert out.startswith("gpu0  1,000 MiB, 900 MiB to lease\n")
    assert "\nqwen3  ready  100\n" in out
    code, out, _ = await house.command.run("models", "--json")
    assert code == 0
    said = json.loads(out)
    assert [model["model_key"] for model in said["models"]] == ["qwen3", "sdxl"]
    assert said["leases"][0]["granted_mib"] == 100


async def test_models_without_a_broker_shows_what_is_known(house: House) -> None:
    await house.servers.pop("broker").stop()
    code, out, _ = await house.command.run("models", "--once")
    assert code == 1
    assert "qwen3" in out
    assert "The broker does not answer; start the house" in out


@pytest.mark.parametrize(
    "words", [["models"], ["load", "m"], ["unload", "m"], ["plan", "m"], ["leases"]]
)
async def test_a_house_that_does_not_run_is_one_sentence(house: House, words: list[str]) -> None:
    while house.servers:
        await house.servers.popitem()[1].stop()
    code, out, err = await house.command.run(*words)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert "does not answer; start the house with `cohabit up`" in err


async def test_models_live_follows_what_happens(house: House) -> None:
    async with house.command.on_terminal("models", columns=COLUMNS) as terminal:
        at = await terminal.until("qwen3")
        await house.scheduler.watched.put(status("flux-dev"))
        at = await terminal.until("flux-dev", at)
        terminal.resize(20, 60)
        at = await terminal.until("flux-dev", at)
        await house.servers.pop("scheduler").stop()
        await terminal.until("The scheduler does not answer", at)
        terminal.process.send_signal(signal.SIGINT)
        assert await terminal.ended() == 0
        await terminal.until(re.escape("\x1b[?25h"))  # the cursor is back
        assert "\x1b[?1049l" in terminal.text  # and so is the page that was there before
        assert "Traceback" not in terminal.text


async def test_models_live_asks_where_nothing_is_streamed(house: House) -> None:
    house.scheduler.streams = False
    async with house.command.on_terminal("models", columns=COLUMNS) as terminal:
        at = await terminal.until("qwen3")
        house.scheduler.status = status("flux-dev")
        await terminal.until("flux-dev", at)
        assert "not built" not in terminal.text
        terminal.process.send_signal(signal.SIGTERM)
        assert await terminal.ended() == 128 + signal.SIGTERM
        await terminal.until(re.escape("\x1b[?1049l"))


async def test_load_is_one_line_where_there_is_no_terminal(house: House) -> None:
    for said in (MODEL_STATE_COLD, MODEL_STATE_LOADING, MODEL_STATE_READY):
        await house.scheduler.loads.put(pb.LoadModelResponse(state=said))
    code, out, err = await house.command.run("load", "qwen3", "--tier", "paid")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"qwen3 is ready after \d+\.\d s\.\n", out)
    assert house.scheduler.asked == [pb.LoadModelRequest(model="qwen3", tier=TIER_PAID)]


async def test_load_shows_its_stages_on_a_terminal(house: House) -> None:
    async with house.command.on_terminal("load", "flux-dev", columns=COLUMNS) as terminal:
        at = await terminal.until("queued")
        await house.scheduler.loads.put(pb.LoadModelResponse(state=MODEL_STATE_COLD))
        leaving = status("sdxl")
        leaving.models[0].leaving_for = "flux-dev"
        await house.scheduler.watched.put(leaving)
        at = await terminal.until("making room: sdxl to leave", at)
        await house.scheduler.loads.put(
            pb.LoadModelResponse(state=MODEL_STATE_LOADING, progress=0.4)
        )
        at = await terminal.until("loading 40%", at)
        await house.scheduler.loads.put(pb.LoadModelResponse(state=MODEL_STATE_READY))
        await terminal.until("flux-dev is ready after", at)
        assert await terminal.ended() == 0


async def test_ctrl_c_gives_the_load_up(house: House) -> None:
    async with house.command.on_terminal("load", "qwen3", columns=COLUMNS) as terminal:
        await house.scheduler.loads.put(
            pb.LoadModelResponse(state=MODEL_STATE_LOADING, progress=0.1)
        )
        await terminal.until("loading 10%")
        terminal.process.send_signal(signal.SIGINT)
        await terminal.until("Gave up waiting for qwen3")
        assert await terminal.ended() == 128 + signal.SIGINT
        async with asyncio.timeout(DEADLINE_S):
            await house.scheduler.given_up.wait()


async def test_a_load_that_fails_or_ends_early_is_a_sentence(house: House) -> None:
    await house.scheduler.loads.put(Fault(Reason.MODEL_FAILED, "Its file is cut off."))
    assert await house.command.run("load", "qwen3") == (1, "", "Its file is cut off.\n")
    await house.scheduler.loads.put(None)
    code, _, err = await house.command.run("load", "qwen3")
    assert code == 1
    assert err.startswith("The load of qwen3 ended before it was ready;")


async def test_unload_says_what_was_asked_and_what_came_of_it(house: House) -> None:
    assert await house.command.run("unload", "qwen3") == (0, "qwen3 is unloaded.\n", "")
    assert (await house.command.run("unload", "qwen3", "--force", "--drain", "0"))[0] == 0
    assert house.scheduler.asked == [
        pb.UnloadModelRequest(model="qwen3"),
        pb.UnloadModelRequest(model="qwen3", drain_ms=1, force=True),
    ]
    house.scheduler.unload = Fault(Reason.MODEL_BUSY, "It is running 2 request(s).")
    assert await house.command.run("unload", "qwen3") == (1, "", "It is running 2 request(s).\n")


async def test_an_unknown_model_is_told_which_there_are(house: House) -> None:
    missing = Fault(Reason.MODEL_NOT_FOUND, "There is no model 'sdx'.")
    house.scheduler.unload = house.scheduler.plan = missing
    await house.scheduler.loads.put(missing)
    for command in ("load", "unload", "plan"):
        code, _, err = await house.command.run(command, "sdx")
        assert (code, err) == (1, "There is no model 'sdx'; there are: sdxl, qwen3.\n")


async def test_plan_tells_what_would_happen(house: House) -> None:
    plan = pb.PlanResidencyResponse(feasible=True, needed_mib=9, explanation="sdxl is idle.")
    plan.evictions.add(model_key="sdxl", freed_mib=10, cost=0.5, why="idle")
    house.scheduler.plan, house.scheduler.status = plan, status("flux-dev", "sdxl")
    code, out, _ = await house.command.run("plan", "flux-dev")
    assert code == 0
    assert "\n1  sdxl   10 MiB  0.50  idle\n" in out
    code, out, _ = await house.command.run("plan", "flux-dev", "--json", "--tier", "paid")
    assert json.loads(out)["evictions"] == [
        {"model_key": "sdxl", "freed_mib": 10, "cost": 0.5, "why": "idle"}
    ]
    assert house.scheduler.asked[-1].tier == TIER_PAID
    house.scheduler.plan = pb.PlanResidencyResponse(explanation="All are pinned.")
    assert (await house.command.run("plan", "flux-dev"))[0] == 1
    house.scheduler.plan = not_implemented("SchedulerService.PlanResidency")
    code, _, err = await house.command.run("plan", "flux-dev")
    assert (code, err.count("\n")) == (1, 1)
    assert "is not built yet" in err


async def test_leases_and_what_is_in_use(house: House) -> None:
    code, out, _ = await house.command.run("leases")
    assert code == 0
    assert "1 lease: 100 MiB granted, 0 MiB in use" in out
    code, out, _ = await house.command.run("leases", "--json")
    assert json.loads(out)["granted_mib"] == 100
