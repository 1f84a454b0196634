"""The models of one service, as the service and its callers see them: list, load, unload, close.

What happens between a load and an unload is `landlord`'s. Each change is published as
cohabit.models.v1 messages on `events`, which `servicer` passes on.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping

from chassis import log
from chassis.clock import steady_ms
from chassis.errors import Fault, Reason, not_implemented
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2 as pb
from hosting import metrics, refusals
from hosting.broadcast import Broadcast
from hosting.core import Answer, State, answer_load
from hosting.draining import finish, see_off
from hosting.hosted import Hosted
from hosting.landlord import Landlord
from hosting.leases import LeaseBook
from hosting.retiring import Retiring
from hosting.tenancy import Tenancy
from hosting.trial import check_free
from hosting.values import Adjustable, EngineHome, Source
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
        self.configuration = pb.Configuration()
        """How the service stands to its files as they are now."""
        self._adopting: set[str] = set()
        """Leases that are being taken up by a load that has not begun."""
        self.events: Broadcast[pb.WatchModelsResponse] = Broadcast()
        self._landlord = Landlord(home, leases, self.events)
        self._retiring = Retiring(self._landlord, home.removal_drain_s, self._forget)

    def get(self, key: str) -> Hosted:
        """The model named `key`. Raises Fault MODEL_NOT_FOUND."""
        try:
            return self._models[key]
        except KeyError:
            there_are = sorted(key for key, one in self._models.items() if not one.removed)
            raise refusals.no_model(self._home.service, key, there_are) from None

    def messages(self) -> list[pb.Model]:
        """Every model as it stands, ordered by key."""
        return [model_message(self._models[key]) for key in sorted(self._models)]

    def figures(self) -> list[tuple[str, pb.EngineFigures]]:
        """What each engine last told of what it counts and holds, by its model."""
        return [(one.spec.key, one.figures) for one in self._tenancies()]

    async def refreshed(self, key: str) -> Hosted:
        """As `get`, after a look at its files."""
        hosted = self.get(key)
        await self._landlord.look_again(hosted)
        return hosted

    async def refresh(self) -> None:
        """Look again at the files of all models that are not loaded; changes are published."""
        for hosted in tuple(self._models.values()):
            await self._landlord.look_again(hosted)

    async def relist(self, keys: Collection[str], anew: Mapping[str, Source]) -> None:
        """Hold these models and no others; `anew` are those that are new, or configured anew.

        A new one appears, a removed one drains and goes; one that is loaded serves on as it is, and
        is what the configuration says from its next load on.
        """
        for key, hosted in tuple(self._models.items()):
            if key not in keys:
                self._retiring.begin(hosted)
        for key, source in anew.items():
            if (hosted_already := self._models.get(key)) is not None:
                self._retiring.take_back(hosted_already)
                await self._landlord.succeed(hosted_already, source)
            else:
                hosted = self._models[key] = await asyncio.to_thread(Hosted.of, source)
                log.get().info("model added", model=key, problem=hosted.spec.problem)
                self._landlord.tell(hosted)

    def note_configuration(self, problem: str, restart_keys: Iterable[str]) -> None:
        """Tell everybody why the configuration is refused, or which keys wait for a restart."""
        self.configuration = pb.Configuration(problem=problem, restart_keys=restart_keys)
        self.events.publish(pb.WatchModelsResponse(configuration=self.configuration))

    async def follow(self, every_s: float = _LOOK_EVERY_S) -> None:
        """Refresh for ever: a file that comes later is leased for by its true size."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.refresh()
            except Exception:  # one look that failed must not be the last
                log.get().exception("bug")

    def lease_ids(self) -> set[str]:
        """The leases of all instances, of what runs on them, and of loads that are to begin."""
        lived_on = {lease_id for one in self._tenancies() for lease_id in one.lease_ids}
        return lived_on | self._adopting

    async def load(self, key: str, lease_id: str) -> AsyncGenerator[pb.Instance, None]:
        """Progress of one more instance until READY. Raises Fault LEASE_REQUIRED, MODEL_FAILED, ….

        When the last caller who wants it leaves, an unfinished load is given up.
        """
        hosted = self.get(key)
        async with hosted.gate:
            tenancy = await self._begun_or_joined(hosted, lease_id)
        tenancy.loaders += 1
        try:
            # The same call made again must not lose the lease that the instance lives on.
            if tenancy.lease.lease_id != lease_id:
                await self._leases.release(lease_id)
            while tenancy.loading:
                changed = hosted.changed  # taken before the yield, so that no change is missed
                yield instance_message(tenancy)
                await changed.wait()
            yield _loaded(hosted, tenancy)
        finally:
            tenancy.loaders -= 1
            if tenancy.loaders == 0 and tenancy.loading and not tenancy.renewing:
                tenancy.dismiss()

    async def unload(
        self, key: str, drain_ms: int, *, force: bool, instance_id: str = ""
    ) -> pb.Model:
        """Drain and stop one instance or all, side by side; those that can leave, leave.

        Raises Fault MODEL_BUSY when one stays in use, MODEL_NOT_FOUND.
        """
        hosted = self.get(key)
        within_s = (drain_ms or _DRAIN_MS) / 1000
        outcomes = await asyncio.gather(
            *(
                see_off(self._landlord, hosted, tenancy, within_s, force=force)
                for tenancy in hosted.named(instance_id)
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if hosted.state is State.FAILED:
            hosted.record.clear()
            self._landlord.tell(hosted)
        return model_message(hosted)

    async def override(self, key: str, values: Mapping[str, str]) -> pb.Model:
        """Settings for the model's next load, as JSON; what is loaded stays as it is.

        Raises Fault INVALID_REQUEST, MODEL_BUSY, MODEL_NOT_FOUND; NOT_IMPLEMENTED for models that
        have none.
        """
        hosted = self.get(key)
        check_free(hosted)
        source = hosted.successor or hosted.source
        if not isinstance(source, Adjustable):
            raise not_implemented(f"Overriding settings of the {self._home.service} service")
        await self._landlord.describe_as(hosted, source, lambda: source.override(values))
        return model_message(hosted)

    async def adjusted(self, key: str, change: Callable[[], object]) -> pb.Model:
        """The model, described anew after `change` to its source, which runs on a thread.

        Raises what `change` raises.
        """
        hosted = self.get(key)
        await self._landlord.describe_as(hosted, hosted.source, change)
        return model_message(hosted)

    async def finish(self) -> None:
        """Let what runs come to its end within `drain_s`; nothing new is taken, nor loaded.

        Whoever waits for a turn waits on: the scheduler sees the models drain, and grants nothing.
        """
        self._closed = True
        within_s = self._home.drain_s
        log.get().info("draining", within_s=within_s)
        each = [(hosted, one) for hosted in self._models.values() for one in hosted.tenancies]
        await asyncio.gather(
            *(finish(self._landlord, hosted, one, within_s) for hosted, one in each)
        )

    async def close(self) -> None:
        """Stop every engine, at once and side by side; nothing is loaded any more."""
        self._closed = True
        leaving = self._tenancies()
        for tenancy in leaving:
            tenancy.dismiss()
        try:
            async with asyncio.timeout(self._home.stop_timeout_s + _KILL_S):
                await asyncio.gather(*(tenancy.over.wait() for tenancy in leaving))
        except TimeoutError:
            left = [one.instance_id for one in self._tenancies()]
            log.get().error("engines left behind", instances=left)

    def _forget(self, hosted: Hosted) -> None:
        key = hosted.spec.key
        del self._models[key]
        metrics.forget(key)
        self.events.publish(pb.WatchModelsResponse(removed_key=key))
        log.get().info("model gone", model=key)

    def _tenancies(self) -> list[Tenancy]:
        return [one for hosted in self._models.values() for one in hosted.tenancies]

    async def _begun_or_joined(self, hosted: Hosted, lease_id: str) -> Tenancy:
        if not lease_id:
            raise refusals.lease_required("pass the lease_id of a lease")
        if await self._leases.find(hosted.spec.key, lease_id) is None:
            raise refusals.lease_required(f"there is no lease of that id for '{hosted.spec.key}'")
        while True:
            most = hosted.spec.max_instances
            answer, at = answer_load(hosted.seen_by(lease_id), most)
            match answer:
                case Answer.START:
                    return await self._begin(hosted, lease_id)
                case Answer.JOIN:
                    return hosted.tenancies[at]
                case Answer.AWAIT_END:
                    await hosted.tenancies[at].over.wait()
                case Answer.BUSY:
                    raise refusals.model_leaving(hosted.spec.key)

    async def _begin(self, hosted: Hosted, lease_id: str) -> Tenancy:
        await self._landlord.look_again(hosted)
        self._check_startable(hosted)
        self._adopting.add(lease_id)
        try:
            lease = await self._adopted(lease_id)
            self._check_startable(hosted)
            if lease.granted_mib < hosted.resident_mib:
                raise refusals.lease_too_small(hosted, lease.granted_mib)
            return self._landlord.move_in(hosted, lease)
        finally:
            self._adopting.discard(lease_id)

    async def _adopted(self, lease_id: str) -> broker_pb2.Lease:
        try:
            return await self._leases.adopt(lease_id, 0)
        except Fault as fault:
            if fault.reason is Reason.LEASE_NOT_FOUND:
                raise refusals.lease_required("the one that was passed has ended") from None
            raise

    def _check_startable(self, hosted: Hosted) -> None:
        if self._closed:
            raise refusals.stopping(self._home.service)
        if hosted.removed:
            raise refusals.removed(hosted.spec.key)
        if hosted.spec.problem:
            raise Fault(Reason.MODEL_FAILED, hosted.spec.problem, retry_after_s=_LOOK_EVERY_S)
        if hosted.record.cooling_ms(steady_ms()):
            raise refusals.model_failed(hosted, hosted.record.reason, hosted.record.message)


def _loaded(hosted: Hosted, tenancy: Tenancy) -> pb.Instance:
    if tenancy.state is State.READY:
        return instance_message(tenancy)
    if tenancy.state is State.FAILED and (fault := tenancy.fault) is not None:
        if tenancy.trial is not None:
            raise refusals.trial_failed(hosted.spec.key)
        raise refusals.model_failed(hosted, fault.reason.value, fault.message)
    raise refusals.unloaded_meanwhile(hosted.spec.key)
