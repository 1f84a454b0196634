"""The house as its services tell it: `/status`, and what the admin routes show.

Reads only. What may be changed is in `admin_calls`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import grpc

from chassis.channel import call_metadata
from chassis.errors import Fault
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2
from edge import house_reading as reading
from edge import house_views as views
from edge.catalog import Catalog
from edge.errors import model_not_found
from edge.signals.failures import Failures
from edge.standing import Standing

if TYPE_CHECKING:
    from cohabit.broker.v1.broker_pb2_grpc import BrokerServiceAsyncStub

_ASK_S = 5.0
_SHOWN_FAILURES = 5
_PROBE_S = 1.0

Reach = Literal["ok", "unreachable"]
Ready = Callable[[float], Awaitable[None]]
"""Raises Fault unless a service answers within so many seconds."""


@dataclass(slots=True)
class _Seen:
    """What has answered, and what is amiss."""

    services: dict[str, Reach]
    reasons: list[str] = field(default_factory=list)
    scheduler: scheduler_pb2.Status = field(default_factory=scheduler_pb2.Status)
    models: Sequence[models_pb2.Model] = ()
    devices: Sequence[views.DeviceView] = ()

    def miss(self, service: str, why: str) -> None:
        """It does not answer."""
        self.services[service] = "unreachable"
        self.reasons.append(why)

    def view(self, version: str, edge: views.EdgeView) -> views.HouseStatus:
        """All of it."""
        for name in sorted(self.scheduler.unreachable_workers):
            self.miss(name, f"The {name} service does not answer.")
        self.reasons += reading.degraded(self.models)
        known = reading.by_key(self.scheduler)
        return views.HouseStatus(
            version=version,
            status="degraded" if self.reasons else "ok",
            reasons=self.reasons,
            edge=edge,
            services=self.services,
            devices=list(self.devices),
            permits=views.PermitsView(self.scheduler.permits_total, self.scheduler.permits_in_use),
            queue=reading.tier_views(self.scheduler),
            models=[reading.model_view(model, _of(known, model)) for model in self.models],
        )


@dataclass(frozen=True, slots=True)
class EdgeNow:
    """What the edge knows of itself."""

    standing: Standing = field(default_factory=Standing)
    failures: Failures = field(default_factory=Failures)
    began_s: float = field(default_factory=time.monotonic)

    def view(self) -> views.EdgeView:
        """As it stands. Reads files: call it on a thread."""
        return views.EdgeView(
            uptime_s=round(time.monotonic() - self.began_s),
            draining=self.standing.draining,
            workers=self.standing.workers,
            workers_up=self.standing.up,
            failures=self.failures.latest(_SHOWN_FAILURES),
        )


@dataclass(frozen=True, slots=True)
class House:
    """Asks; `services` are the model services of the configuration, `jobs` its job service."""

    catalog: Catalog
    broker: "BrokerServiceAsyncStub"
    services: Sequence[str]
    version: str
    jobs: Ready | None = None
    edge: EdgeNow = field(default_factory=EdgeNow)
    problems: Callable[[], list[str]] = list
    """What is wrong with the edge itself, in sentences."""

    async def status(self) -> views.HouseStatus:
        """Never raises Fault: what does not answer is part of the answer."""
        seen = _Seen(dict.fromkeys(("broker", "scheduler", *self.services), "ok"))
        try:
            seen.scheduler = await self._scheduler(_PROBE_S)
            seen.models = await self.catalog.listed(_PROBE_S)
        except Fault as fault:
            seen.miss("scheduler", fault.message)
        try:
            seen.devices = await self.devices(_PROBE_S)
        except Fault as fault:
            seen.miss("broker", fault.message)
        await self._see_jobs(seen)
        if self.edge.standing.amiss:
            seen.reasons.append(self.edge.standing.amiss)
        seen.reasons += self.problems()
        return seen.view(self.version, await asyncio.to_thread(self.edge.view))

    async def models(self) -> views.AdminModelList:
        """Every configured model. Raises Fault."""
        known = reading.by_key(await self._scheduler(_ASK_S))
        models = await self.catalog.listed()
        return views.AdminModelList([reading.admin_model(it, _of(known, it)) for it in models])

    async def model(self, name: str) -> views.AdminModel:
        """One of them. Raises Fault MODEL_NOT_FOUND."""
        for model in (await self.models()).data:
            if model.name == name:
                return model
        raise model_not_found(name)

    async def memory(self) -> views.GpuMemory:
        """The device, and what each model takes of it. Raises Fault."""
        models = await self.catalog.listed()
        return views.GpuMemory(
            devices=await self.devices(_ASK_S),
            models=[reading.model_memory(model) for model in models],
        )

    async def devices(self, within_s: float) -> list[views.DeviceView]:
        """As the broker tells. Raises Fault."""
        request = broker_pb2.GetDeviceMemoryRequest()
        try:
            answer = await self.broker.GetDeviceMemory(
                request, timeout=within_s, metadata=call_metadata()
            )
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "broker") from None
        return [reading.device_view(memory) for memory in answer.devices]

    async def _see_jobs(self, seen: _Seen) -> None:
        if self.jobs is None:
            return
        seen.services["jobs"] = "ok"
        try:
            await self.jobs(_PROBE_S)
        except Fault as fault:
            seen.miss("jobs", fault.message)

    async def _scheduler(self, within_s: float) -> scheduler_pb2.Status:
        request = scheduler_pb2.GetStatusRequest()
        try:
            answer = await self.catalog.scheduler.GetStatus(request, timeout=within_s)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "scheduler") from None
        return answer.status


def _of(known: Mapping[str, reading.ModelStatus], model: models_pb2.Model) -> reading.ModelStatus:
    return known.get(model.key, scheduler_pb2.Status.ModelStatus())
