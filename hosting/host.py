"""The models of one service and their engines: the shell around hosting.core.

Owns every engine process of the service. Publishes each change as cohabit.models.v1 messages,
which `servicer` passes on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb

from chassis import log
from chassis.errors import Fault, Reason
from hosting.broadcast import Broadcast
from hosting.core import Life, State, Step
from hosting.instance import EngineHandle
from hosting.leases import LeaseBook
from hosting.values import EngineHome, ModelSpec
from hosting.wire import instance_message, model_message

_DRAIN_MS = 30_000


@dataclass(slots=True)
class Hosted:
    """One model and, while it is loaded, its engine."""

    spec: ModelSpec
    life: Life = field(default_factory=Life)
    engine: EngineHandle | None = None
    lease: broker_pb2.Lease | None = None
    facts: pb.EngineReady | None = None
    permits: set[str] = field(default_factory=set)
    progress: float = 0.0
    materialised_mib: int = 0
    load_ms: int = 0
    loading: asyncio.Task[None] | None = None
    loaders: int = 0
    """Callers that still want the load in progress."""
    keeping: list[asyncio.Task[None]] = field(default_factory=list)
    stopping: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class ModelHost:
    """Loads, unloads and watches the models of one service."""

    def __init__(self, home: EngineHome, specs: Iterable[ModelSpec], leases: LeaseBook) -> None:
        self._home = home
        self._leases = leases
        self._models = {spec.key: Hosted(spec) for spec in specs}
        self._ports = set(range(home.ports[0], home.ports[1] + 1)) if home.ports else set()
        self.events: Broadcast[pb.WatchModelsResponse] = Broadcast()

    def get(self, key: str) -> Hosted:
        """The model named `key`. Raises Fault MODEL_NOT_FOUND."""
        try:
            return self._models[key]
        except KeyError:
            raise Fault(
                Reason.MODEL_NOT_FOUND,
                f"The {self._home.service} service has no model '{key}'; "
                f"it has: {', '.join(sorted(self._models)) or 'none'}.",
            ) from None

    def messages(self) -> list[pb.Model]:
        """Every model as it stands, ordered by key."""
        return [model_message(self._models[key]) for key in sorted(self._models)]

    def lease_ids(self) -> set[str]:
        """The leases of the models that are loaded or loading."""
        return {h.lease.lease_id for h in self._models.values() if h.lease is not None}

    async def load(self, key: str, lease_id: str) -> AsyncIterator[pb.Instance]:
        """Progress of a load until READY. Raises Fault LEASE_REQUIRED, MODEL_FAILED, ….

        When the last caller who wants it leaves, an unfinished load is given up.
        """
        hosted = self.get(key)
        await self._begin_load(hosted, lease_id)
        hosted.loaders += 1
        try:
            while True:
                async with hosted.changed:
                    if hosted.life.state is State.LOADING:
                        message = instance_message(hosted)
                        if message is not None:
                            yield message
                        await hosted.changed.wait()
                    if hosted.life.state is not State.LOADING:
                        break
            yield self._loaded(hosted)
        finally:
            hosted.loaders -= 1
            if hosted.loaders == 0 and hosted.loading is not None:
                hosted.loading.cancel()

    async def unload(self, key: str, drain_ms: int, *, force: bool) -> pb.Model:
        """Drain and stop the model's engine. Raises Fault MODEL_BUSY when it stays in use."""
        hosted = self.get(key)
        if hosted.loading is not None:
            hosted.loading.cancel()
            await asyncio.wait([hosted.loading])
        if hosted.life.state is State.READY:
            await self._step(hosted, Step.DRAIN)
            if not await self._drained(hosted, (drain_ms or _DRAIN_MS) / 1000) and not force:
                await self._step(hosted, Step.RESUME)
                raise Fault(
                    Reason.MODEL_BUSY,
                    f"Model '{key}' is still running {len(hosted.permits)} request(s); "
                    "wait, or unload it with force.",
                    retry_after_s=1.0,
                )
            await self._stop_engine(hosted)
            await self._step(hosted, Step.STOPPED)
        elif hosted.life.state is State.FAILED:
            await self._step(hosted, Step.STOPPED)
        return model_message(hosted)

    async def close(self) -> None:
        """Stop every engine, at once and side by side."""
        loads = [h.loading for h in self._models.values() if h.loading is not None]
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        await asyncio.gather(*(self._stop_engine(h) for h in self._models.values()))

    # -- loading ---------------------------------------------------------------------------

    async def _begin_load(self, hosted: Hosted, lease_id: str) -> None:
        if not lease_id:
            raise Fault(
                Reason.LEASE_REQUIRED,
                "A model is loaded into leased memory only: pass the lease_id of a lease, "
                "or ask the scheduler to load the model.",
            )
        state = hosted.life.state
        if state in (State.READY, State.LOADING):
            await self._leases.release(lease_id)
            return
        if state is State.DRAINING:
            raise Fault(
                Reason.MODEL_BUSY, f"Model '{hosted.spec.key}' is leaving.", retry_after_s=1.0
            )
        if cooling_ms := hosted.life.cooling_ms(_now_ms()):
            raise self._failed(hosted, cooling_ms)
        hosted.life.take(Step.LOAD, _now_ms())
        hosted.progress, hosted.facts = 0.0, None
        hosted.loading = asyncio.create_task(self._run_load(hosted, lease_id))
        await self._tell(hosted)

    async def _run_load(self, hosted: Hosted, lease_id: str) -> None:
        try:
            async with asyncio.timeout(self._home.load_timeout_s):
                await self._start_engine(hosted, lease_id)
        except Fault as fault:
            await self._abandon(hosted, lease_id)
            hosted.life.fail(fault.reason.value, fault.message, _now_ms())
        except TimeoutError:
            await self._abandon(hosted, lease_id)
            took = f"The load took longer than {self._home.load_timeout_s:.0f} s."
            hosted.life.fail(Reason.MODEL_FAILED.value, took, _now_ms())
        except asyncio.CancelledError:
            await self._abandon(hosted, lease_id)
            hosted.life.take(Step.STOPPED, _now_ms())
        finally:
            hosted.loading = None
            await self._tell(hosted)

    async def _start_engine(self, hosted: Hosted, lease_id: str) -> None:
        hosted.lease = await self._leases.adopt(lease_id, 0)
        port = self._ports.pop() if self._home.ports else None
        engine = hosted.engine = await EngineHandle.spawn(self._home, hosted.spec, port)
        hosted.stopping = False
        while hosted.facts is None:
            event = await engine.events.get()
            if event is None:
                raise engine.exit_fault
            if event.HasField("failed"):
                await engine.over.wait()
                raise engine.exit_fault
            await self._absorb(hosted, event)
        hosted.load_ms = round((time.monotonic() - engine.began) * 1000)
        hosted.life.take(Step.READY, _now_ms())
        log.get().info("model ready", model=hosted.spec.key, load_ms=hosted.load_ms)
        await self._leases.adopt(hosted.lease.lease_id, self._in_use(hosted))
        hosted.keeping = [
            asyncio.create_task(self._follow(hosted, engine)),
            asyncio.create_task(self._keep_lease(hosted, hosted.lease)),
        ]

    def _loaded(self, hosted: Hosted) -> pb.Instance:
        message = instance_message(hosted)
        if hosted.life.state is State.READY and message is not None:
            return message
        if hosted.life.state is State.FAILED:
            raise self._failed(hosted, hosted.life.cooling_ms(_now_ms()))
        raise Fault(Reason.MODEL_BUSY, f"The load of '{hosted.spec.key}' was given up.")

    @staticmethod
    def _failed(hosted: Hosted, cooling_ms: int) -> Fault:
        return Fault(
            Reason.MODEL_FAILED,
            f"Model '{hosted.spec.key}' failed: {hosted.life.message}",
            retry_after_s=max(0.1, cooling_ms / 1000),
            metadata={"cause": hosted.life.reason},
        )

    # -- living ----------------------------------------------------------------------------

    async def _follow(self, hosted: Hosted, engine: EngineHandle) -> None:
        while (event := await engine.events.get()) is not None:
            await self._absorb(hosted, event)
        if hosted.stopping:
            return
        fault = engine.exit_fault
        log.get().error("engine died", model=hosted.spec.key, reason=fault.reason.value)
        hosted.keeping[1].cancel()
        await self._abandon(hosted, hosted.lease.lease_id if hosted.lease else "")
        hosted.life.fail(fault.reason.value, fault.message, _now_ms())
        await self._tell(hosted)

    async def _keep_lease(self, hosted: Hosted, lease: broker_pb2.Lease) -> None:
        await self._leases.keep(lease, lambda: self._in_use(hosted))
        log.get().error("lease lost", model=hosted.spec.key)
        # The follower sees the exit and turns the model into FAILED.
        if hosted.engine is not None:
            await hosted.engine.stop(self._home.stop_timeout_s)

    async def _absorb(self, hosted: Hosted, event: pb.WatchEngineResponse) -> None:
        match event.WhichOneof("event"):
            case "load_progress":
                hosted.progress = event.load_progress
                await self._tell(hosted)
            case "ready":
                hosted.facts = event.ready
            case "usage":
                hosted.materialised_mib = event.usage.materialised_mib
            case "permit":
                await self._permit(hosted, event.permit)

    async def _permit(self, hosted: Hosted, change: pb.PermitChange) -> None:
        if change.phase == pb.PermitChange.PHASE_STARTED:
            hosted.permits.add(change.permit_id)
        else:
            hosted.permits.discard(change.permit_id)
        change.model_key = hosted.spec.key
        change.instance_id = hosted.engine.instance_id if hosted.engine else ""
        self.events.publish(pb.WatchModelsResponse(permit=change))
        async with hosted.changed:
            hosted.changed.notify_all()

    def _in_use(self, hosted: Hosted) -> int:
        """Memory the engine holds. On a card the grant stands for it: processes in containers
        cannot be told apart by the driver, and host memory says nothing about the card."""
        on_host = hosted.lease is None or hosted.lease.device == "cpu"
        return hosted.materialised_mib if on_host else hosted.spec.resident_mib

    # -- leaving ---------------------------------------------------------------------------

    async def _drained(self, hosted: Hosted, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s), hosted.changed:
                await hosted.changed.wait_for(lambda: not hosted.permits)
        except TimeoutError:
            return False
        return True

    async def _stop_engine(self, hosted: Hosted) -> None:
        hosted.stopping = True
        for task in hosted.keeping:
            task.cancel()
        await self._abandon(hosted, hosted.lease.lease_id if hosted.lease else "")

    async def _abandon(self, hosted: Hosted, lease_id: str) -> None:
        """Stop the engine process, then give its lease back: in this order, memory first."""
        engine, hosted.engine = hosted.engine, None
        if engine is not None:
            await engine.stop(self._home.stop_timeout_s)
            if self._home.ports:
                self._ports.add(int(engine.address.rpartition(":")[2]))
        hosted.lease = None
        for permit_id in tuple(hosted.permits):
            await self._permit(
                hosted,
                pb.PermitChange(permit_id=permit_id, phase=pb.PermitChange.PHASE_ENDED),
            )
        if lease_id:
            await self._leases.release(lease_id)

    async def _step(self, hosted: Hosted, step: Step) -> None:
        hosted.life.take(step, _now_ms())
        await self._tell(hosted)

    async def _tell(self, hosted: Hosted) -> None:
        self.events.publish(pb.WatchModelsResponse(model=model_message(hosted)))
        async with hosted.changed:
            hosted.changed.notify_all()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
