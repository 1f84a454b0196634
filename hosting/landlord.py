"""The life of one instance: its engine started, followed, and seen off in the right order.

Two tasks. `living` starts the engine and follows what it reports; it has no clean-up of its own,
so it may be cancelled at any await and any number of times. `ending` waits for it and clears up:
process first, then leases, because memory is back only when the process is gone.

An engine that ends itself is followed by another, on the same lease: the next process is started
as soon as the first says that it goes, and told what it is when the first is gone.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable

from chassis import log
from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting import metrics
from hosting.broadcast import Broadcast
from hosting.core import State, Step
from hosting.hosted import Hosted
from hosting.instance import EngineHandle, RenewedError
from hosting.leases import LeaseBook
from hosting.ports import Ports, is_free
from hosting.tenancy import Tenancy
from hosting.usage import Usage
from hosting.values import AUTO, EngineHome, ModelSpec, Source
from hosting.wire import model_message, permit_change

_NEVER = object()
"""The stamp of what was never looked at."""
_STOP_LOADING_S = 1.0
"""An engine that serves nobody yet loses nothing by being killed."""


class Landlord:
    """Begins tenancies and publishes what happens in them."""

    def __init__(
        self, home: EngineHome, leases: LeaseBook, events: Broadcast[pb.WatchModelsResponse]
    ) -> None:
        self._home = home
        self._leases = leases
        self._events = events
        self._ports = ports_of(home)

    def move_in(self, hosted: Hosted, lease: broker_pb2.Lease) -> Tenancy:
        """Begin a load under an adopted lease. Raises Fault when no port is left."""
        tenancy = Tenancy(hosted.spec, lease, self._leases, self._first_port(), hosted.trial)
        hosted.tenancies.append(tenancy)
        tenancy.living = asyncio.create_task(self._live(hosted, tenancy))
        tenancy.ending = asyncio.create_task(self._end(hosted, tenancy, tenancy.living))
        self.tell(hosted)
        return tenancy

    def step(self, hosted: Hosted, tenancy: Tenancy, step: Step) -> None:
        """Take a step of an instance's life and tell everybody."""
        tenancy.life.take(step, steady_ms())
        self.tell(hosted)

    def tell(self, hosted: Hosted) -> None:
        """Publish the model as it stands."""
        self._events.publish(pb.WatchModelsResponse(model=model_message(hosted)))
        hosted.wake()

    async def look_again(self, hosted: Hosted) -> None:
        """Describe the model anew if its files or its configuration have changed, unless an engine
        lives by the old description. A model that failed may then be loaded at once: it is another.
        """
        async with hosted.describing:
            if hosted.tenancies:
                return
            source, known = hosted.source, hosted.stamp
            if hosted.successor is not None and hosted.trial is None:
                source, known = hosted.successor, _NEVER
            told = await asyncio.to_thread(_described_anew, source, known)
            on_trial = source is hosted.successor and hosted.trial is not None
            if told is not None and not hosted.tenancies and not on_trial:
                self._describe(hosted, source, *told)

    async def succeed(self, hosted: Hosted, source: Source) -> None:
        """Have `source` describe the model from its next load on: its configuration has changed."""
        async with hosted.describing:
            hosted.successor = source
            stamp, spec = await asyncio.to_thread(_looked, source)
            if spec == hosted.spec and hosted.trial is None:
                self._describe(hosted, source, stamp, spec)  # what is loaded is what was meant
        await self.look_again(hosted)
        if hosted.successor is not None:
            log.get().info("model changes with its next load", model=hosted.spec.key)
            self.tell(hosted)

    async def describe_as(
        self, hosted: Hosted, source: Source, change: Callable[[], object]
    ) -> None:
        """Describe the model by `source` after `change`, which blocks, and whose Fault comes out
        here.

        What is loaded stays as it is; the next load goes by the new description.
        """
        async with hosted.describing:
            self._describe(hosted, source, *await asyncio.to_thread(_changed, source, change))

    def _describe(self, hosted: Hosted, source: Source, stamp: Hashable, spec: ModelSpec) -> None:
        before, was_stale = hosted.spec, hosted.stale
        if source is hosted.successor:
            hosted.source, hosted.successor = source, None
        hosted.stamp, hosted.spec = stamp, spec
        if spec == before:
            if hosted.stale != was_stale:
                self.tell(hosted)
            return
        log.get().info("model changed", model=spec.key, problem=spec.problem)
        hosted.measured.clear()
        hosted.record.failures = 0
        hosted.record.clear()
        self.tell(hosted)

    def _first_port(self) -> list[int]:
        return [self._ports.take()] if self._ports is not None else []

    def _give_back(self, ports: Iterable[int]) -> None:
        if self._ports is not None:
            for port in ports:
                self._ports.give_back(port)

    # -- living ----------------------------------------------------------------------------

    async def _live(self, hosted: Hosted, tenancy: Tenancy) -> None:
        """Ends by a Fault, which says why the engine is no more, by being cancelled, or because
        the tenancy is to be dismissed.
        """
        await tenancy.extras.ask(tenancy.lease.device, hosted.peak_transient_mib)
        self.tell(hosted)
        self._spawn(tenancy, waits=False)
        while not tenancy.dismissed:
            assert tenancy.spawning is not None  # noqa: S101 - a first, or the next
            # Shielded: a process that is being started must come to our hands to be stopped.
            engine = tenancy.engine = await asyncio.shield(tenancy.spawning)
            if tenancy.renewing:
                engine.begin()
            # From here on, for a load may take longer than a lease lasts.
            if tenancy.keeper is None:
                tenancy.keeper = asyncio.create_task(self._keep_lease(hosted, tenancy))
            await self._load(hosted, tenancy, engine)
            try:
                while True:
                    await self._absorb_next(hosted, tenancy, engine)
            except RenewedError:
                self._renewed(hosted, tenancy)

    def _spawn(self, tenancy: Tenancy, *, waits: bool) -> None:
        granted, name = tenancy.extras.granted, tenancy.name
        if waits and self._ports is not None:
            # Whoever was sent to the former must not find this one.
            tenancy.ports.append(self._ports.take_another(than=tenancy.ports[-1]))
        port = tenancy.ports[-1] if tenancy.ports else None
        spawn = EngineHandle.spawn(self._home, tenancy.spec, port, name, granted, waits=waits)
        tenancy.spawning = asyncio.create_task(spawn)

    async def _load(self, hosted: Hosted, tenancy: Tenancy, engine: EngineHandle) -> None:
        limit_s = self._home.load_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while tenancy.facts is None:
                    await self._absorb_next(hosted, tenancy, engine)
        except TimeoutError:
            late = f"The load took longer than {limit_s:g} s."
            raise Fault(Reason.MODEL_FAILED, late) from None
        except RenewedError:  # it has served nothing that it could have to be rid of
            raise engine.exit_fault from None
        tenancy.load_ms = round((time.monotonic() - engine.began) * 1000)
        log.get().info("model ready", instance=tenancy.instance_id, load_ms=tenancy.load_ms)
        hosted.record.clear()
        metrics.count_load(hosted.spec.key, tenancy.load_ms, renewed=tenancy.renewing)
        tenancy.renewing = False
        tenancy.life.take(Step.READY, steady_ms())
        _measure(hosted, tenancy)
        self.tell(hosted)
        tenancy.renew_leases()

    async def _keep_lease(self, hosted: Hosted, tenancy: Tenancy) -> None:
        def regained(lease: broker_pb2.Lease) -> None:
            tenancy.lease = lease
            self.tell(hosted)

        await self._leases.keep(
            tenancy.lease, lambda: tenancy.resident_in_use_mib, regained, tenancy.renew
        )
        log.get().error("lease lost", instance=tenancy.instance_id)
        tenancy.lost = Fault(
            Reason.LEASE_NOT_FOUND,
            "The lease of its memory has ended and the broker grants no other; "
            "it can be loaded again when memory is free.",
        )
        if tenancy.living is not None:
            tenancy.living.cancel()

    async def _absorb_next(self, hosted: Hosted, tenancy: Tenancy, engine: EngineHandle) -> None:
        event = await engine.report(self._home.silence_s)
        if engine.renews:
            self._renews(hosted, tenancy)
        match event.WhichOneof("event"):
            case "load_progress":
                tenancy.progress = event.load_progress
                self.tell(hosted)
            case "ready":
                tenancy.facts = event.ready
            case "usage":
                usage = Usage(event.usage.materialised_mib, event.usage.transient_mib)
                self._used(hosted, tenancy, usage)
                if event.usage.HasField("speculation"):
                    self._guessed(hosted, tenancy, event.usage.speculation)
            case "figures":
                self.take_figures(tenancy, event.figures)
            case "permit":
                self._permit(hosted, tenancy, event.permit)
            case "failed":
                raise engine.failure(event.failed.reason, event.failed.message)

    def _used(self, hosted: Hosted, tenancy: Tenancy, usage: Usage) -> None:
        if usage == tenancy.usage:
            return
        tenancy.usage = usage
        _measure(hosted, tenancy)
        if usage.is_far_from(tenancy.renewed):
            tenancy.renew_leases()
        self.tell(hosted)

    def _guessed(self, hosted: Hosted, tenancy: Tenancy, told: pb.Speculation) -> None:
        if told != tenancy.speculation:
            metrics.count_speculation(tenancy.spec.key, tenancy.speculation, told)
            tenancy.speculation = told
            self.tell(hosted)

    def take_figures(self, tenancy: Tenancy, told: pb.EngineFigures) -> None:
        """Its engine has said what it counts; by two ways, so that the newer may come first."""
        if metrics.count_figures(tenancy.spec.key, tenancy.figures, told):
            tenancy.figures = told

    def _permit(self, hosted: Hosted, tenancy: Tenancy, change: pb.PermitChange) -> None:
        if change.phase == pb.PermitChange.PHASE_STARTED:
            if change.permit_id not in tenancy.permits:
                metrics.REQUESTS.labels(tenancy.spec.key).inc()
            tenancy.permits.add(change.permit_id)
            tenancy.transients.begin(change.permit_id, change.transient_lease_id)
        else:
            tenancy.permits.discard(change.permit_id)
            tenancy.transients.end(change.permit_id)
        self._events.publish(permit_change(tenancy, change))
        hosted.wake()

    # -- renewing --------------------------------------------------------------------------

    def _renews(self, hosted: Hosted, tenancy: Tenancy) -> None:
        """Its engine is about to end itself: nobody is sent there any more, and the next process
        gets ready. One that drains is not followed by another: who has it leave, wins.
        """
        if tenancy.renewing or tenancy.state is not State.READY:
            return
        log.get().info("model renews", instance=tenancy.instance_id)
        tenancy.renewing, tenancy.trial = True, None
        self._spawn(tenancy, waits=True)
        self.step(hosted, tenancy, Step.RENEW)

    def _renewed(self, hosted: Hosted, tenancy: Tenancy) -> None:
        """The process is gone, and what ran in it: the device is free for the next."""
        self._renews(hosted, tenancy)  # unless that was heard already
        tenancy.dismissed = tenancy.dismissed or not tenancy.renewing
        tenancy.engine, tenancy.facts, tenancy.speculation = None, None, None
        tenancy.progress, tenancy.usage, tenancy.figures = 0.0, Usage(), pb.EngineFigures()
        former, tenancy.ports = tenancy.ports[:-1], tenancy.ports[-1:]
        self._give_back(port for port in former if port not in tenancy.ports)
        self._end_permits(hosted, tenancy)
        tenancy.renew_leases()
        self.tell(hosted)

    # -- ending ----------------------------------------------------------------------------

    async def _end(self, hosted: Hosted, tenancy: Tenancy, living: "asyncio.Task[None]") -> None:
        await asyncio.wait([living])
        try:
            tenancy.fault = _outcome(tenancy, living)
            if tenancy.state is State.READY:
                # Nobody may be sent to what is about to stop.
                self.step(hosted, tenancy, Step.DRAIN)
            await self._stop_engine(hosted, tenancy)
            # Told after the leases are released: whoever hears that it failed may ask for memory
            # at once, and must not find the old lease in the way.
            await self._release(tenancy)
        finally:
            self._move_out(hosted, tenancy)

    def _move_out(self, hosted: Hosted, tenancy: Tenancy) -> None:
        fault, now_ms = tenancy.fault, steady_ms()
        served_ms = tenancy.life.served_ms(now_ms)
        tenancy.life.take(Step.STOPPED if fault is None else Step.FAIL, now_ms)
        hosted.tenancies.remove(tenancy)
        why = fault.reason.value if fault is not None else ""
        metrics.count_end(tenancy.spec.key, why, served=served_ms is not None)
        if fault is not None:
            reason = fault.reason.value
            log.get().error("model failed", instance=tenancy.instance_id, reason=reason)
        if fault is not None and tenancy.trial is not None and served_ms is None:
            tenancy.trial.fail(fault)
        elif fault is not None:
            hosted.record.add(fault.reason.value, fault.message, served_ms, now_ms)
        elif not hosted.tenancies:
            hosted.record.clear()
        tenancy.over.set()
        self.tell(hosted)

    async def _stop_engine(self, hosted: Hosted, tenancy: Tenancy) -> None:
        engines = [tenancy.engine] if tenancy.engine is not None else []
        if tenancy.spawning is not None:
            # It may have been started while `living` was cancelled, or have failed to start.
            await asyncio.wait([tenancy.spawning])
            if tenancy.spawning.exception() is None:
                spawned = tenancy.spawning.result()
                # Two, if it is about to take the other's place.
                engines = [spawned, *(one for one in engines if one is not spawned)]
        grace_s = self._home.stop_timeout_s
        if tenancy.facts is None:
            grace_s = min(grace_s, _STOP_LOADING_S)
        await asyncio.gather(*(engine.stop(grace_s) for engine in engines))
        self._end_permits(hosted, tenancy)
        tenancy.engine = None

    def _end_permits(self, hosted: Hosted, tenancy: Tenancy) -> None:
        """Nothing runs there any more, whether or not the engine could say so."""
        for permit_id in tuple(tenancy.permits):
            ended = pb.PermitChange(permit_id=permit_id, phase=pb.PermitChange.PHASE_ENDED)
            self._permit(hosted, tenancy, ended)

    async def _release(self, tenancy: Tenancy) -> None:
        self._give_back(tenancy.ports)
        if tenancy.keeper is not None:
            tenancy.keeper.cancel()
            await asyncio.wait([tenancy.keeper])
        await asyncio.gather(
            tenancy.transients.close(),
            tenancy.extras.close(),
            self._leases.release(tenancy.lease.lease_id),
        )


def ports_of(home: EngineHome) -> Ports | None:
    """Those of its engines; None: they have Unix sockets."""
    if home.ports is None:
        return None
    host = "" if home.host == AUTO else home.host.strip("[]")
    return Ports(home.service, *home.ports, lambda port: is_free(host, port))


def _measure(hosted: Hosted, tenancy: Tenancy) -> None:
    # On a card nobody can say: processes in containers cannot be told apart by its driver.
    if tenancy.state is State.READY and not tenancy.on_card:
        own = tenancy.usage.without(tenancy.extras.in_use_mib)
        hosted.measured.see(tenancy.spec, own, len(tenancy.permits))


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
    return None if source.stamp() == known else _looked(source)


def _looked(source: Source) -> tuple[Hashable, ModelSpec]:
    stamp = source.stamp()  # first: a change in between is seen the next time
    return stamp, source.describe()


def _changed(source: Source, change: Callable[[], object]) -> tuple[Hashable, ModelSpec]:
    change()
    return _looked(source)
