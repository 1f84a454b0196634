"""The life of one engine under one lease: started, followed, and seen off in the right order.

Two tasks. `living` starts the engine and follows what it reports; it has no clean-up of its own,
so it may be cancelled at any await and any number of times. `ending` waits for it and clears up:
process first, then lease, because memory is back only when the process is gone.
"""

import asyncio
import time
from collections.abc import Hashable

from chassis import log
from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting.broadcast import Broadcast
from hosting.core import State, Step
from hosting.hosted import Hosted, Tenancy
from hosting.instance import EngineHandle
from hosting.leases import LeaseBook
from hosting.values import EngineHome, ModelSpec, Source
from hosting.wire import model_message


class Landlord:
    """Begins tenancies and publishes what happens in them."""

    def __init__(
        self, home: EngineHome, leases: LeaseBook, events: Broadcast[pb.WatchModelsResponse]
    ) -> None:
        self._home = home
        self._leases = leases
        self._events = events
        self._ports = set(range(home.ports[0], home.ports[1] + 1)) if home.ports else set()

    def move_in(self, hosted: Hosted, lease: broker_pb2.Lease) -> None:
        """Begin a load under an adopted lease. Raises Fault when no port is left."""
        tenancy = Tenancy(self._take_port())
        hosted.tenancy, hosted.lease = tenancy, lease
        hosted.progress, hosted.facts, hosted.materialised_mib = 0.0, None, 0
        tenancy.living = asyncio.create_task(self._live(hosted, tenancy))
        tenancy.ending = asyncio.create_task(self._end(hosted, tenancy, tenancy.living))
        self.step(hosted, Step.LOAD)

    def step(self, hosted: Hosted, step: Step) -> None:
        """Take a step of the model's life and tell everybody."""
        hosted.life.take(step, steady_ms())
        self._tell(hosted)

    async def look_again(self, hosted: Hosted) -> None:
        """Describe the model anew if its files have changed, unless an engine lives by the old
        description. A model that failed may then be loaded at once: it is another one.
        """
        async with hosted.describing:
            if hosted.tenancy is not None:
                return
            told = await asyncio.to_thread(_described_anew, hosted.source, hosted.stamp)
            if told is None or hosted.tenancy is not None:
                return
            before = hosted.spec
            hosted.stamp, hosted.spec = told
            if hosted.spec == before:
                return
            log.get().info("model changed", model=hosted.spec.key, problem=hosted.spec.problem)
            if hosted.life.state is State.FAILED:
                hosted.life.failures = 0
                hosted.life.take(Step.STOPPED, steady_ms())
            self._tell(hosted)

    def _tell(self, hosted: Hosted) -> None:
        self._events.publish(pb.WatchModelsResponse(model=model_message(hosted)))
        hosted.wake()

    def _take_port(self) -> int | None:
        if self._home.ports is None:
            return None
        if not self._ports:
            raise Fault(
                Reason.NO_HEADROOM,
                f"All ports for engines of the {self._home.service} service are taken; "
                "unload a model, or widen engine_ports.",
            )
        return self._ports.pop()

    # -- living ----------------------------------------------------------------------------

    async def _live(self, hosted: Hosted, tenancy: Tenancy) -> None:
        """Ends only by a Fault, which says why the engine is no more, or by being cancelled."""
        home = self._home
        tenancy.spawning = asyncio.create_task(EngineHandle.spawn(home, hosted.spec, tenancy.port))
        # Shielded: a process that is being started must come to our hands to be stopped.
        engine = hosted.engine = await asyncio.shield(tenancy.spawning)
        # From here on, for a load may take longer than a lease lasts.
        tenancy.keeper = asyncio.create_task(self._keep_lease(hosted, tenancy))
        try:
            async with asyncio.timeout(home.load_timeout_s):
                while hosted.facts is None:
                    await self._absorb_next(hosted, engine)
        except TimeoutError:
            late = f"The load took longer than {home.load_timeout_s:g} s."
            raise Fault(Reason.MODEL_FAILED, late) from None
        hosted.load_ms = round((time.monotonic() - engine.began) * 1000)
        log.get().info("model ready", model=hosted.spec.key, load_ms=hosted.load_ms)
        self.step(hosted, Step.READY)
        tenancy.renew.set()
        while True:
            await self._absorb_next(hosted, engine)

    async def _keep_lease(self, hosted: Hosted, tenancy: Tenancy) -> None:
        def regained(lease: broker_pb2.Lease) -> None:
            hosted.lease = lease

        if hosted.lease is not None:
            await self._leases.keep(
                hosted.lease, lambda: _in_use_mib(hosted), regained, tenancy.renew
            )
        log.get().error("lease lost", model=hosted.spec.key)
        tenancy.lost = Fault(
            Reason.LEASE_NOT_FOUND,
            "The lease of its memory has ended and the broker grants no other; "
            "it can be loaded again when memory is free.",
        )
        if tenancy.living is not None:
            tenancy.living.cancel()

    async def _absorb_next(self, hosted: Hosted, engine: EngineHandle) -> None:
        event = await engine.report(self._home.silence_s)
        match event.WhichOneof("event"):
            case "load_progress":
                hosted.progress = event.load_progress
                self._tell(hosted)
            case "ready":
                hosted.facts = event.ready
            case "usage" if event.usage.materialised_mib != hosted.materialised_mib:
                hosted.materialised_mib = event.usage.materialised_mib
                self._tell(hosted)
            case "permit":
                started = event.permit.phase == pb.PermitChange.PHASE_STARTED
                self._permit(hosted, event.permit.permit_id, engine.instance_id, started=started)
            case "failed":
                raise engine.failure(event.failed.reason, event.failed.message)

    def _permit(self, hosted: Hosted, permit_id: str, instance_id: str, *, started: bool) -> None:
        phase = pb.PermitChange.PHASE_STARTED if started else pb.PermitChange.PHASE_ENDED
        (hosted.permits.add if started else hosted.permits.discard)(permit_id)
        change = pb.PermitChange(
            permit_id=permit_id, model_key=hosted.spec.key, instance_id=instance_id, phase=phase
        )
        self._events.publish(pb.WatchModelsResponse(permit=change))
        hosted.wake()

    # -- ending ----------------------------------------------------------------------------

    async def _end(self, hosted: Hosted, tenancy: Tenancy, living: "asyncio.Task[None]") -> None:
        await asyncio.wait([living])
        try:
            fault = _outcome(tenancy, living)
            if hosted.life.state is State.READY:
                self.step(hosted, Step.DRAIN)  # nobody may be sent to what is about to stop
            await self._stop_engine(hosted, tenancy)
            # Told after the lease is released: whoever hears that it failed may ask for memory at
            # once, and must not find the old lease in the way.
            await self._release(hosted, tenancy)
            if fault is None:
                self.step(hosted, Step.STOPPED)
            else:
                self._fail(hosted, fault)
        finally:
            hosted.tenancy = None
            tenancy.over.set()
            hosted.wake()

    def _fail(self, hosted: Hosted, fault: Fault) -> None:
        log.get().error("model failed", model=hosted.spec.key, reason=fault.reason.value)
        hosted.life.fail(fault.reason.value, fault.message, steady_ms())
        self._tell(hosted)

    async def _stop_engine(self, hosted: Hosted, tenancy: Tenancy) -> None:
        if tenancy.spawning is not None:
            # It may have been started while `living` was cancelled, or have failed to start.
            await asyncio.wait([tenancy.spawning])
            if tenancy.spawning.exception() is None:
                hosted.engine = tenancy.spawning.result()
        engine = hosted.engine
        if engine is None:
            return
        await engine.stop(self._home.stop_timeout_s)
        for permit_id in tuple(hosted.permits):
            self._permit(hosted, permit_id, engine.instance_id, started=False)
        hosted.engine = None

    async def _release(self, hosted: Hosted, tenancy: Tenancy) -> None:
        if tenancy.port is not None:
            self._ports.add(tenancy.port)
        if tenancy.keeper is not None:
            tenancy.keeper.cancel()
            await asyncio.wait([tenancy.keeper])
        lease, hosted.lease = hosted.lease, None
        if lease is not None:
            await self._leases.release(lease.lease_id)


def _outcome(tenancy: Tenancy, living: "asyncio.Task[None]") -> Fault | None:
    """Why it failed; None when it was asked to go."""
    if tenancy.dismissed:
        return None
    error = None if living.cancelled() else living.exception()
    if isinstance(error, Fault):
        return error
    if error is not None:
        log.get().error("bug", exc_info=error)
        return Fault(Reason.MODEL_FAILED, "The engine could not be started; the log says how.")
    return tenancy.lost


def _described_anew(source: Source, known: Hashable) -> tuple[Hashable, ModelSpec] | None:
    stamp = source.stamp()
    return None if stamp == known else (stamp, source.describe())


def _in_use_mib(hosted: Hosted) -> int:
    """Memory the engine holds. On a card the model's footprint stands for it: processes in
    containers cannot be told apart by the driver, and host memory says nothing about the card."""
    on_host = hosted.lease is None or hosted.lease.device == "cpu"
    in_use = hosted.spec.resident_mib if hosted.facts is not None else 0
    if on_host:
        in_use = hosted.materialised_mib
    # Never nothing, once a process exists: a next life of this service must find the lease used.
    return max(1, in_use)
