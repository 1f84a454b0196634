"""The house that chaos is let loose on, and what must be true of it once it is quiet again.

Eight simulated models on a card that cannot hold them all: twins, one with two instances, one whose
requests add a peak, and one that has no room beside two of the others.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import yaml

from chassis.channel import open_channel
from chassis.simulated_card import SimulatedCard
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.integration.house import House, free_port, started

CAPACITY_MIB = 15_000
LEASE_TTL_S = 10.0
WAIT_S = 6.0
"""A request that waited this long is refused."""
SERVICES = ("services.scheduler", "services.broker", "services.simulated")
ENGINE = "services.simulated.engine_main"

_LANGUAGE: dict[str, Any] = {
    "kind": "language",
    "lane": "chat",
    "context_tokens": 4096,
    "tokens_per_s": 15,
}
MODELS: dict[str, dict[str, Any]] = {
    # Beside film, neither talk has room nor paint with its peak.
    "talk": _LANGUAGE
    | {"family": "talker", "resident_mib": 7000, "context_tokens": 32768, "load_s": 6},
    "talk-lite": _LANGUAGE | {"family": "talker", "resident_mib": 2500, "places": 4, "load_s": 3},
    "small": _LANGUAGE | {"resident_mib": 1200, "places": 4, "load_s": 2},
    "pair": _LANGUAGE | {"resident_mib": 1000, "places": 2, "max_instances": 2, "load_s": 2},
    "paint": {"kind": "diffusion", "lane": "image", "resident_mib": 4000, "peak_mib": 2200}
    | {"load_s": 5, "work_s": 6},
    "film": {"kind": "diffusion", "lane": "chat", "resident_mib": 9000, "peak_mib": 500}
    | {"load_s": 6, "work_s": 4},
    "ears": {"kind": "transcription", "lane": "speech", "resident_mib": 700, "peak_mib": 200}
    | {"places": 2, "load_s": 1, "work_s": 4},
    "vectors": {"kind": "embedding", "lane": "features", "resident_mib": 500, "peak_mib": 50}
    | {"places": 4, "load_s": 1, "work_s": 1},
}


def configuration(folder: Path, port: int) -> Path:
    """A cohabit.yaml with those models, twenty times as fast as they say."""
    lane = {"cost": 1, "wait_s": WAIT_S, "max_run_s": 10}
    lanes = {"image": lane | {"cost": 4}, "chat": lane, "speech": lane, "features": lane}
    whole: dict[str, Any] = {
        "run_dir": "run",
        "state_dir": "state",
        "log_level": "debug",  # what an engine takes in is counted by its log
        "broker": {
            "device": "simulated",
            "capacity_mib": CAPACITY_MIB,
            "lease_ttl_s": LEASE_TTL_S,
        },
        "scheduler": {
            "permits": 8,
            "lanes": lanes,
            "max_swap_delay_s": 0.5,
            "background_quiet_s": 0.1,
            "drain_s": 2,
            "use_within_s": 1,
        },
        "simulated": {"time_scale": 0.05, "models": MODELS},
        "edge": {"listen": f"127.0.0.1:{port}", "keepalive_s": 0.2},
    }
    path = folder / "cohabit.yaml"
    path.write_text(yaml.safe_dump(whole))
    return path


@dataclass(frozen=True)
class ChaosHouse(House):
    """The house, and looks at it from outside."""

    @property
    def card(self) -> SimulatedCard:
        return SimulatedCard(self.folder / "run" / "sim0.card")

    def engines(self) -> list[psutil.Process]:
        return [each for each in self.processes() if ENGINE in _argv(each)]

    def orphans(self) -> list[str]:
        """Processes that live in the house's folder and that nobody in it looks after."""
        looked_after = {os.getpid(), self.launcher.pid, *(p.pid for p in self.processes())}
        return [
            " ".join(_argv(each))
            for each in psutil.process_iter()
            if each.pid not in looked_after and _cwd(each) == str(self.folder)
        ]

    async def catalogue(self) -> dict[str, models_pb2.Model]:
        async with open_channel(self.address("scheduler")) as channel:
            stub: scheduler_pb2_grpc.SchedulerServiceAsyncStub
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            answer = await stub.ListModels(scheduler_pb2.ListModelsRequest(), timeout=5)
            return {model.key: model for model in answer.models}

    async def unload_all(self) -> None:
        async with self.scheduler() as stub:
            for key in MODELS:
                await stub.UnloadModel(scheduler_pb2.UnloadModelRequest(model=key), timeout=20)


@contextmanager
def in_chaos(folder: Path) -> Iterator[ChaosHouse]:
    """The house, up until the end of the block; fails if anything outlives it."""
    port = free_port()
    with started(configuration(folder, port), port) as house:
        yield ChaosHouse(house.folder, house.port, house.launcher, house.log)


Look = Callable[[ChaosHouse], Awaitable[list[str]]]


async def until_nothing_is_wrong(house: ChaosHouse, look: Look, within_s: float) -> float:
    """Look again and again until nothing is found; how long that took. Fails with what was."""
    began = time.monotonic()
    while wrong := await _looked(house, look):
        if time.monotonic() - began > within_s:
            raise AssertionError(f"{within_s} s later still: {'; '.join(wrong)}")
        await asyncio.sleep(0.05)  # a poll of other processes, bounded above
    return time.monotonic() - began


async def _looked(house: ChaosHouse, look: Look) -> list[str]:
    try:
        return await look(house)
    except grpc.aio.AioRpcError as error:
        return [f"a service answers {error.code().name}: {error.details()}"]


async def at_rest(house: ChaosHouse) -> list[str]:
    """What a house where nothing runs and nothing waits has too much, or too little."""
    status, models, leases = await house.status(), await house.catalogue(), await house.leases()
    ready = {
        each.lease_id: key
        for key, model in models.items()
        for each in model.instances
        if each.state == models_pb2.MODEL_STATE_READY
    }
    resident_mib = sum(MODELS[key]["resident_mib"] for key in ready.values())
    instances = [each for model in models.values() for each in model.instances]
    facts = {
        "the edge is not ready": not await _is_ready(house),
        "not reconciled": not status.reconciled,
        f"unreachable {list(status.unreachable_workers)}": bool(status.unreachable_workers),
        f"models unknown {sorted(MODELS.keys() - models)}": models.keys() != MODELS.keys(),
        f"{status.permits_in_use} permits in use": status.permits_in_use != 0,
        f"running {[each.request_id for each in status.running]}": bool(status.running),
        "somebody waits": any(tier.waiting for tier in status.tiers),
        "engines run permits": any(each.running_permit_ids for each in instances),
        "instances that are not READY": len(ready) != len(instances),
        f"transient leases {_transient(leases)}": bool(_transient(leases)),
        f"resident leases {_resident(leases)} for {ready}": _resident(leases) != ready,
        f"{house.card.used_mib()} MiB in use for {ready}": house.card.used_mib() != resident_mib,
        f"{len(house.engines())} engines for {ready}": len(house.engines()) != len(ready),
        f"orphans {house.orphans()}": bool(house.orphans()),
    }
    return [fact for fact, is_so in facts.items() if is_so]


async def empty(house: ChaosHouse) -> list[str]:
    """What a house where no model is loaded has too much."""
    leases = await house.leases()
    facts = {
        f"leases {[(each.holder, each.granted_mib) for each in leases]}": bool(leases),
        f"held {house.card.used_by()}": house.card.used_mib() != 0,
        f"{len(house.engines())} engines": bool(house.engines()),
        f"orphans {house.orphans()}": bool(house.orphans()),
    }
    return [fact for fact, is_so in facts.items() if is_so]


async def _is_ready(house: ChaosHouse) -> bool:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{house.url}/readyz")
    return answer.status_code == 200


def _transient(leases: list[broker_pb2.Lease]) -> dict[str, str]:
    return {each.lease_id: each.holder for each in leases if not _is_resident(each)}


def _resident(leases: list[broker_pb2.Lease]) -> dict[str, str]:
    held = {each.lease_id: each.holder for each in leases if _is_resident(each)}
    return {lease_id: holder.removeprefix("simulated/") for lease_id, holder in held.items()}


def _is_resident(lease: broker_pb2.Lease) -> bool:
    return lease.kind == broker_pb2.LEASE_KIND_RESIDENT


def _argv(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def _cwd(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.cwd()
    return ""
