"""Calls of the scheduler to broker, model services and engines, in domain terms."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

import grpc

from chassis.channel import open_channel
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2, broker_pb2_grpc
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2, models_pb2_grpc
from services.scheduler.core.values import AskTransient, InstanceFacts, ModelFacts, State, Tier

_TIMEOUT_S = 5.0
_SILENCE_S = 20.0
"""A watch that says nothing for this long is dead; the contract promises one event in 10 s."""
_IDLE_ENGINES = 64
_MOST_MIB = 1 << 40
"""The broker's bound. A service may report anything, and sums must stay within the wire's bits."""
_MOST_LOAD_MS = 86_400_000
_STATES = {state.value: state for state in State}


@dataclass(frozen=True, slots=True)
class Denied:
    """The broker's normal no."""

    never: bool
    detail: str
    headroom_mib: int = 0
    """What could be granted now, …"""
    ceiling_mib: int = 0
    """… and at most, on an empty device."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease."""

    lease_id: str
    mib: int


@dataclass(frozen=True, slots=True)
class Everything:
    """All models of a service, and the permits that run there (→ model, instance)."""

    models: tuple[models_pb2.Model, ...]
    running: dict[str, tuple[str, str]]
    configuration: models_pb2.Configuration = field(default_factory=models_pb2.Configuration)


@dataclass(frozen=True, slots=True)
class Changed:
    """One model changed."""

    model: models_pb2.Model


@dataclass(frozen=True, slots=True)
class Removed:
    """One model is configured no more."""

    key: str


@dataclass(frozen=True, slots=True)
class Configured:
    """How a service stands to the configuration as its files have it now."""

    configuration: models_pb2.Configuration


@dataclass(frozen=True, slots=True)
class PermitMoved:
    """Work under a permit began or ended."""

    permit_id: str
    model: str
    instance_id: str
    started: bool


Report = Everything | Changed | Removed | Configured | PermitMoved


class Broker:
    """Leases, and what the device has."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self._stub: broker_pb2_grpc.BrokerServiceAsyncStub = broker_pb2_grpc.BrokerServiceStub(
            self._channel
        )

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def acquire(self, holder: str, mib: int, tier: Tier, leave_mib: int) -> Granted | Denied:
        """A lease for a model that leaves so much headroom, or why there is none. Raises Fault."""
        return await self._acquire(
            broker_pb2.AcquireLeaseRequest(
                holder=holder,
                kind=broker_pb2.LEASE_KIND_RESIDENT,
                tier=common_pb2.Tier.ValueType(tier.value),
                preferred_mib=mib,
                leave_mib=min(leave_mib, _MOST_MIB),
            )
        )

    async def acquire_transient(
        self, holder: str, ask: AskTransient, beside_mib: int
    ) -> Granted | Denied:
        """A lease for one request, or why there is none. Raises Fault.

        It runs beside the `beside_mib` of its own model, which the broker cannot know: what does
        not fit beside that never fits.
        """
        answer = await self._acquire(
            broker_pb2.AcquireLeaseRequest(
                holder=holder,
                kind=broker_pb2.LEASE_KIND_TRANSIENT,
                tier=common_pb2.Tier.ValueType(ask.tier.value),
                preferred_mib=ask.preferred_mib,
                minimum_mib=ask.minimum_mib,
                leave_mib=min(ask.leave_mib, _MOST_MIB),
                request_id=ask.permit_id,
            )
        )
        if isinstance(answer, Granted) or ask.minimum_mib + beside_mib <= answer.ceiling_mib:
            return answer
        detail = (
            f"{ask.minimum_mib} MiB beside the {beside_mib} MiB of the model, where this tier gets "
            f"{answer.ceiling_mib} MiB at most."
        )
        return Denied(True, detail, answer.headroom_mib, answer.ceiling_mib)

    async def headroom_mib(self, tier: Tier) -> int:
        """What a new lease of that tier could be granted on the first device. Raises Fault."""
        request = broker_pb2.GetDeviceMemoryRequest()
        try:
            answer = await self._stub.GetDeviceMemory(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "broker") from None
        rooms = {room.tier: room.headroom_mib for room in answer.devices[0].headroom}
        return rooms.get(common_pb2.Tier.ValueType(tier.value), 0)

    async def _acquire(self, request: broker_pb2.AcquireLeaseRequest) -> Granted | Denied:
        try:
            answer = await self._stub.AcquireLease(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "broker") from None
        if answer.HasField("lease"):
            return Granted(answer.lease.lease_id, answer.lease.granted_mib)
        denial = answer.denial
        never = denial.reason == "never_fits"
        return Denied(never, denial.message, denial.headroom_mib, denial.ceiling_mib)

    async def release(self, lease_id: str) -> None:
        """Give a lease back that nobody took over. Raises Fault."""
        request = broker_pb2.ReleaseLeaseRequest(lease_id=lease_id)
        try:
            await self._stub.ReleaseLease(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "broker") from None


class Worker:
    """One model service."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._channel = open_channel(address)
        self._stub: models_pb2_grpc.ModelServiceAsyncStub = models_pb2_grpc.ModelServiceStub(
            self._channel
        )

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def watch(self) -> AsyncIterator[Report]:
        """Everything, then every change. Raises Fault when the service goes away."""
        call = self._stub.WatchModels(models_pb2.WatchModelsRequest(), wait_for_ready=True)
        try:
            while True:
                async with asyncio.timeout(_SILENCE_S):
                    event = await call.read()
                if not isinstance(event, models_pb2.WatchModelsResponse):
                    return  # the service closed the stream
                if (report := _report(event)) is not None:
                    yield report
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, self.name) from None
        except TimeoutError:
            silent = f"The {self.name} service fell silent."
            raise Fault(Reason.SERVICE_UNAVAILABLE, silent) from None
        finally:
            call.cancel()

    async def load(self, key: str, lease_id: str) -> None:
        """Have a model loaded; returns when it is READY. Raises Fault."""
        call = self._stub.LoadModel(models_pb2.LoadModelRequest(key=key, lease_id=lease_id))
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, self.name) from None
        finally:
            call.cancel()

    async def unload(self, key: str, drain_ms: int, *, force: bool) -> None:
        """Have a model unloaded; returns when its memory is back. Raises Fault."""
        request = models_pb2.UnloadModelRequest(key=key, drain_ms=drain_ms, force=force)
        timeout_s = (drain_ms or 30_000) / 1000 + 30.0
        try:
            await self._stub.UnloadModel(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, self.name) from None


class Engines:
    """Calls to engines, by address."""

    def __init__(self) -> None:
        self._channels: Channels[models_pb2_grpc.EngineServiceAsyncStub] = Channels(
            _IDLE_ENGINES, models_pb2_grpc.EngineServiceStub
        )

    async def close(self) -> None:
        """Close every channel."""
        await self._channels.close()

    async def revoke(self, address: str, permit_id: str, *, only_if_not_started: bool) -> bool:
        """Make a permit worthless. True: its work runs on (`only_if_not_started`).

        Nobody listens on an engine's socket any more: it has ended, and its work with it. Over
        TCP the same may be the network; then the model service will say. Raises Fault.
        """
        request = models_pb2.RevokePermitRequest(
            permit_id=permit_id, only_if_not_started=only_if_not_started
        )
        try:
            async with self._channels.to(address) as stub:
                return (await stub.RevokePermit(request, timeout=_TIMEOUT_S)).running
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error, "engine")
            if error.code() is grpc.StatusCode.UNAVAILABLE and address.startswith("unix:"):
                return False
            raise fault from None


def facts_of(model: models_pb2.Model) -> ModelFacts:
    """A reported model in the core's words."""
    return ModelFacts(
        key=model.key,
        lane=model.lane,
        state=_STATES.get(model.state, State.DRAINING),
        resident_mib=min(model.footprint.resident_mib, _MOST_MIB),
        peak_mib=min(model.footprint.peak_transient_mib, _MOST_MIB),
        family=model.family,
        context_tokens=model.capabilities.context_tokens,
        max_instances=max(1, model.max_instances),
        instances=tuple(map(_instance_facts, model.instances)),
        retry_at_ms=model.failure.retry_at_unix_ms,
        failure=model.failure.message,
        removed=model.removed,
    )


def _instance_facts(instance: models_pb2.Instance) -> InstanceFacts:
    return InstanceFacts(
        instance_id=instance.instance_id,
        state=_STATES.get(instance.state, State.DRAINING),
        address=instance.address,
        places=max(1, instance.places),
        progress=instance.load_progress,
        load_ms=min(instance.load_ms, _MOST_LOAD_MS),
        extra_mib=min(_MOST_MIB, sum(one.mib for one in instance.extras if one.lease_id)),
    )


def _report(event: models_pb2.WatchModelsResponse) -> Report | None:
    match event.WhichOneof("event"):
        case "snapshot":
            models = tuple(event.snapshot.models)
            return Everything(models, _running(models), event.snapshot.configuration)
        case "model":
            return Changed(event.model)
        case "removed_key":
            return Removed(event.removed_key)
        case "configuration":
            return Configured(event.configuration)
        case "permit":
            started = event.permit.phase == models_pb2.PermitChange.PHASE_STARTED
            moved = event.permit
            return PermitMoved(moved.permit_id, moved.model_key, moved.instance_id, started)
    return None


def _running(models: Iterable[models_pb2.Model]) -> dict[str, tuple[str, str]]:
    return {
        permit_id: (model.key, instance.instance_id)
        for model in models
        for instance in model.instances
        for permit_id in instance.running_permit_ids
    }
