"""The models of one service, as the service and its callers see them: list, load, unload, close.

What happens between a load and an unload is `tenancy`'s. Each change is published as
cohabit.models.v1 messages on `events`, which `servicer` passes on.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from chassis import log
from chassis.clock import steady_ms
from chassis.errors import Fault, Reason
from cohabit.models.v1 import models_pb2 as pb
from hosting.broadcast import Broadcast
from hosting.core import State, Step
from hosting.hosted import Hosted
from hosting.leases import LeaseBook
from hosting.tenancy import Landlord
from hosting.values import EngineHome, ModelSpec, Source
from hosting.wire import instance_message, model_message

_DRAIN_MS = 30_000
_LOOK_EVERY_S = 2.0
_KILL_S = 10.0
"""How long close() waits beyond stop_timeout_s: for the kernel, and for a broker that is gone."""


class ModelHost:
    """Loads, unloads and watches the models of one service."""

    def __init__(self, home: EngineHome, sources: Iterable[Source], leases: LeaseBook) -> None:
        self._home = home
        self._leases = leases
        self._models = {hosted.spec.key: hosted for hosted in map(Hosted.of, sources)}
        self._closed = False
        self.events: Broadcast[pb.WatchModelsResponse] = Broadcast()
        self._landlord = Landlord(home, leases, self.events)

    def get(self, key: str) -> Hosted:
        """The model named `key`. Raises Fault MODEL_NOT_FOUND."""
        try:
            return self._models[key]
        except KeyError:
            raise Fault(
                Reason.MODEL_NOT_FOUND,
                f"The {self._home.service} service has no model '{key[:100]}'; "
                f"it has: {', '.join(sorted(self._models)) or 'none'}.",
            ) from None

    def messages(self) -> list[pb.Model]:
        """Every model as it stands, ordered by key."""
        return [model_message(self._models[key]) for key in sorted(self._models)]

    async def refreshed(self, key: str) -> Hosted:
        """As `get`, after a look at its files."""
        hosted = self.get(key)
        await self._landlord.look_again(hosted)
        return hosted

    async def refresh(self) -> None:
        """Look again at the files of all models that are not loaded; changes are published."""
        for hosted in self._models.values():
            await self._landlord.look_again(hosted)

    async def follow(self, every_s: float = _LOOK_EVERY_S) -> None:
        """Refresh for ever: a file that comes later is leased for by its true size."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.refresh()
            except Exception:  # one look that failed must not be the last
                log.get().exception("bug")

    def lease_ids(self) -> set[str]:
        """The leases of the models that are loaded or loading."""
        return {h.lease.lease_id for h in self._models.values() if h.lease is not None}

    async def load(self, key: str, lease_id: str) -> AsyncGenerator[pb.Instance, None]:
        """Progress of a load until READY. Raises Fault LEASE_REQUIRED, MODEL_FAILED, ….

        When the last caller who wants it leaves, an unfinished load is given up.
        """
        hosted = self.get(key)
        hosted.loaders += 1
        try:
            async with hosted.gate:
                await self._begin_load(hosted, lease_id)
            while hosted.loading:
                changed = hosted.changed  # taken before the yield, so that no change is missed
                message = instance_message(hosted)
                if message is not None:
                    yield message
                await changed.wait()
            yield self._loaded(hosted)
        finally:
            hosted.loaders -= 1
            if hosted.loaders == 0 and hosted.loading:
                hosted.dismiss()

    async def unload(self, key: str, drain_ms: int, *, force: bool) -> pb.Model:
        """Drain and stop the model's engine. Raises Fault MODEL_BUSY when it stays in use."""
        hosted = self.get(key)
        match hosted.life.state:
            case State.LOADING:
                hosted.dismiss()
            case State.READY | State.DRAINING:
                await self._drain(hosted, (drain_ms or _DRAIN_MS) / 1000, force=force)
        await hosted.vacant()
        if hosted.life.state is State.FAILED:
            self._landlord.step(hosted, Step.STOPPED)
        return model_message(hosted)

    async def close(self) -> None:
        """Stop every engine, at once and side by side; nothing is loaded any more."""
        self._closed = True
        for hosted in self._models.values():
            hosted.dismiss()
        try:
            async with asyncio.timeout(self._home.stop_timeout_s + _KILL_S):
                await asyncio.gather(*(h.vacant() for h in self._models.values()))
        except TimeoutError:
            left = [h.spec.key for h in self._models.values() if h.tenancy is not None]
            log.get().error("engines left behind", models=left)

    async def _begin_load(self, hosted: Hosted, lease_id: str) -> None:
        if not lease_id:
            raise _lease_required("pass the lease_id of a lease")
        if not await self._leases.is_for(hosted.spec.key, lease_id):
            raise _lease_required(f"there is no lease of that id for '{hosted.spec.key}'")
        if hosted.tenancy is not None and hosted.tenancy.ending_soon:
            await hosted.vacant()
        if hosted.life.state in (State.READY, State.LOADING):
            # The same call made again must not lose the lease that the model lives on.
            if hosted.lease is None or hosted.lease.lease_id != lease_id:
                await self._leases.release(lease_id)
            return
        await self._landlord.look_again(hosted)
        self._check_startable(hosted)
        try:
            lease = await self._leases.adopt(lease_id, 0)
        except Fault as fault:
            if fault.reason is Reason.LEASE_NOT_FOUND:
                raise _lease_required("the one that was passed has ended") from None
            raise
        self._check_startable(hosted)
        if lease.granted_mib < hosted.spec.resident_mib:
            raise _lease_too_small(hosted.spec, lease.granted_mib)
        self._landlord.move_in(hosted, lease)

    def _check_startable(self, hosted: Hosted) -> None:
        if self._closed:
            raise Fault(
                Reason.SERVICE_UNAVAILABLE,
                f"The {self._home.service} service is stopping; try again shortly.",
                retry_after_s=1.0,
            )
        if hosted.life.state is State.DRAINING:
            raise Fault(
                Reason.MODEL_BUSY, f"Model '{hosted.spec.key}' is leaving.", retry_after_s=1.0
            )
        if hosted.spec.problem:
            raise Fault(Reason.MODEL_FAILED, hosted.spec.problem, retry_after_s=_LOOK_EVERY_S)
        if cooling_ms := hosted.life.cooling_ms(steady_ms()):
            raise _failed(hosted, cooling_ms)

    @staticmethod
    def _loaded(hosted: Hosted) -> pb.Instance:
        message = instance_message(hosted)
        if hosted.life.state is State.READY and message is not None:
            return message
        if hosted.life.state is State.FAILED:
            raise _failed(hosted, hosted.life.cooling_ms(steady_ms()))
        raise Fault(
            Reason.MODEL_BUSY,
            f"Model '{hosted.spec.key}' was unloaded before it was ready; load it again.",
            retry_after_s=1.0,
        )

    async def _drain(self, hosted: Hosted, within_s: float, *, force: bool) -> None:
        """Wait until no request runs and have the engine stopped, or leave it as it was."""
        if hosted.life.state is State.READY:
            self._landlord.step(hosted, Step.DRAIN)

        def settled() -> bool:
            return not hosted.permits or hosted.life.state is not State.DRAINING

        hosted.drainers += 1
        try:
            if await _within(hosted, settled, within_s) or force:
                hosted.dismiss()
                return
            raise Fault(
                Reason.MODEL_BUSY,
                f"Model '{hosted.spec.key}' is still running {len(hosted.permits)} request(s); "
                "wait, or unload it with force.",
                retry_after_s=1.0,
            )
        finally:
            hosted.drainers -= 1
            leaving = hosted.tenancy is None or hosted.tenancy.ending_soon
            if not hosted.drainers and not leaving and hosted.life.state is State.DRAINING:
                self._landlord.step(hosted, Step.RESUME)


async def _within(hosted: Hosted, condition: Callable[[], bool], within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await hosted.changed.wait()
    except TimeoutError:
        return False
    return True


def _lease_required(what: str) -> Fault:
    return Fault(
        Reason.LEASE_REQUIRED,
        f"A model is loaded into leased memory only: {what}, "
        "or ask the scheduler to load the model.",
    )


def _lease_too_small(spec: ModelSpec, granted_mib: int) -> Fault:
    return Fault(
        Reason.LEASE_REQUIRED,
        f"Model '{spec.key}' needs {spec.resident_mib} MiB, but the lease for it is of "
        f"{granted_mib} MiB: if its file has just changed, ask again; else pass a larger lease.",
        retry_after_s=1.0,
    )


def _failed(hosted: Hosted, cooling_ms: int) -> Fault:
    return Fault(
        Reason.MODEL_FAILED,
        f"Model '{hosted.spec.key}' failed: {hosted.life.message}",
        retry_after_s=max(0.1, cooling_ms / 1000),
        metadata={"cause": hosted.life.reason},
    )
