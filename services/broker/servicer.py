"""Wire ↔ domain for cohabit.broker.v1, nothing else: checks fields, calls the shell, translates."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from chassis.errors import Fault, Reason
from cohabit.broker.v1 import broker_pb2 as pb
from cohabit.broker.v1 import broker_pb2_grpc as rpc
from cohabit.common.v1 import common_pb2
from services.broker.config import BrokerConfig
from services.broker.core import DenialReason, Denied, Lease, LeaseKind, Tier
from services.broker.device_cpu import read_host
from services.broker.shell import DeviceState, Shell, Wish
from services.broker.warming import MAX_PATHS, Progress, Warmer

if TYPE_CHECKING:
    import grpc

    Context = grpc.aio.ServicerContext[Any, Any]

_MAX_TEXT_CHARS = 256
_MAX_MIB = 1 << 40  # sums of many leases stay within the wire's 64 bits


class BrokerServicer(rpc.BrokerServiceServicer):
    """BrokerService over a shell."""

    def __init__(self, shell: Shell, warmer: Warmer, config: BrokerConfig) -> None:
        self._shell, self._warmer, self._config = shell, warmer, config
        self._default_tier = Tier[config.default_tier.upper()]

    async def AcquireLease(
        self, request: pb.AcquireLeaseRequest, context: "Context"
    ) -> pb.AcquireLeaseResponse:
        """Grant or deny."""
        outcome = await self._shell.acquire(_wish_of(request, self._default_tier))
        if isinstance(outcome, Lease):
            return pb.AcquireLeaseResponse(lease=_lease(outcome))
        return pb.AcquireLeaseResponse(denial=_denial(outcome, request))

    async def RenewLease(
        self, request: pb.RenewLeaseRequest, context: "Context"
    ) -> pb.RenewLeaseResponse:
        """Extend."""
        _check(bool(request.lease_id), "lease_id is empty; name the lease to renew")
        _check_mib("materialised_mib", request.materialised_mib)
        _check_mib("shrink_to_mib", request.shrink_to_mib)
        lease = await self._shell.renew(
            request.lease_id, request.materialised_mib, request.ttl_ms, request.shrink_to_mib
        )
        return pb.RenewLeaseResponse(lease=_lease(lease))

    async def ReleaseLease(
        self, request: pb.ReleaseLeaseRequest, context: "Context"
    ) -> pb.ReleaseLeaseResponse:
        """Give back."""
        _check(bool(request.lease_id), "lease_id is empty; name the lease to release")
        await self._shell.release(request.lease_id)
        return pb.ReleaseLeaseResponse()

    async def ListLeases(
        self, request: pb.ListLeasesRequest, context: "Context"
    ) -> pb.ListLeasesResponse:
        """Who holds what."""
        leases = await self._shell.leases(request.holder_prefix, request.device)
        return pb.ListLeasesResponse(leases=[_lease(lease) for lease in leases])

    async def GetDeviceMemory(
        self, request: pb.GetDeviceMemoryRequest, context: "Context"
    ) -> pb.GetDeviceMemoryResponse:
        """How each device stands."""
        states = await self._shell.states()
        reserves = [
            pb.Reserve(name=name, reserved_mib=mib) for name, mib in self._config.reserves.items()
        ]
        return pb.GetDeviceMemoryResponse(devices=[_device(state, reserves) for state in states])

    async def GetHostMemory(
        self, request: pb.GetHostMemoryRequest, context: "Context"
    ) -> pb.GetHostMemoryResponse:
        """How the host stands."""
        host = read_host()
        return pb.GetHostMemoryResponse(
            total_mib=host.total_mib,
            available_mib=host.available_mib,
            floor_mib=self._config.warm_floor_of(host.total_mib),
            warming=[_progress(progress) for progress in self._warmer.lately()],
        )

    async def WatchPressure(
        self, request: pb.WatchPressureRequest, context: "Context"
    ) -> AsyncIterator[pb.WatchPressureResponse]:
        """Who is to shrink, from now on."""
        fits = len(request.holder_prefix) <= _MAX_TEXT_CHARS
        _check(fits, f"holder_prefix is longer than {_MAX_TEXT_CHARS} characters")
        with self._shell.watchers.watch(request.holder_prefix) as box:
            await context.send_initial_metadata(())  # from here on nothing is missed
            while (shrink := await box.next()) is not None:
                yield pb.WatchPressureResponse(
                    lease_id=shrink.lease_id,
                    shrink_mib=shrink.shrink_mib,
                    refused_tier=common_pb2.Tier.ValueType(shrink.refused_tier),
                )

    async def WarmFiles(
        self, request: pb.WarmFilesRequest, context: "Context"
    ) -> AsyncIterator[pb.WarmFilesResponse]:
        """Files into the page cache."""
        _check(bool(request.paths), "paths is empty; name the files to warm")
        fits = len(request.paths) <= MAX_PATHS
        _check(fits, f"{len(request.paths)} paths are too many; name at most {MAX_PATHS} a call")
        async with aclosing(self._warmer.warm(request.paths)) as warming:
            async for progress in warming:
                yield _progress(progress)


def _wish_of(request: pb.AcquireLeaseRequest, default_tier: Tier) -> Wish:
    service, slash, model = request.holder.partition("/")
    named = bool(service and slash and model) and len(request.holder) <= _MAX_TEXT_CHARS
    _check(named, f'holder must be "<service>/<model key>", at most {_MAX_TEXT_CHARS} characters')
    fits = len(request.request_id) <= _MAX_TEXT_CHARS
    _check(fits, f"request_id is longer than {_MAX_TEXT_CHARS} characters")
    _check(int(request.kind) in set(LeaseKind), "kind is missing; say resident or transient")
    _check(int(request.tier) in {0, *Tier}, f"tier {request.tier} is unknown")
    _check(request.preferred_mib > 0, "preferred_mib is missing; say how much would be best")
    _check_mib("preferred_mib", request.preferred_mib)
    _check_mib("leave_mib", request.leave_mib)
    minimum_mib = request.minimum_mib or request.preferred_mib
    _check(
        minimum_mib <= request.preferred_mib,
        f"minimum_mib {minimum_mib} exceeds preferred_mib {request.preferred_mib}",
    )
    return Wish(
        holder=request.holder,
        device=request.device,
        kind=LeaseKind(request.kind),
        tier=Tier(request.tier) if request.tier else default_tier,
        preferred_mib=request.preferred_mib,
        minimum_mib=minimum_mib,
        ttl_ms=request.ttl_ms,
        request_id=request.request_id,
        leave_mib=request.leave_mib,
    )


def _check(good: bool, complaint: str) -> None:
    if not good:
        raise Fault(Reason.INVALID_REQUEST, f"{complaint}.")


def _check_mib(name: str, value: int) -> None:
    _check(value <= _MAX_MIB, f"{name} {value} is beyond any device; the unit is MiB")


def _lease(lease: Lease) -> pb.Lease:
    return pb.Lease(
        lease_id=lease.lease_id,
        holder=lease.holder,
        device=lease.device,
        kind=pb.LeaseKind.ValueType(lease.kind),
        tier=common_pb2.Tier.ValueType(lease.tier),
        granted_mib=lease.granted_mib,
        materialised_mib=lease.materialised_mib,
        granted_unix_ms=lease.granted_unix_ms,
        expires_unix_ms=lease.expires_unix_ms,
        renewed_unix_ms=lease.renewed_unix_ms,
    )


def _denial(denied: Denied, request: pb.AcquireLeaseRequest) -> pb.Denial:
    least = f"{request.minimum_mib or request.preferred_mib} MiB"
    if request.leave_mib:
        least += f", with {request.leave_mib} MiB left over,"
    if denied.reason is DenialReason.NEVER_FITS:
        said = (
            f"{least} can never be lent at this tier: the device gives at most "
            f"{denied.ceiling_mib} MiB when it is empty; ask for less or use a larger device."
        )
    else:
        said = (
            f"{least} are asked for and {denied.headroom_mib} MiB can be lent at this tier "
            "now; other leases must end first."
        )
    return pb.Denial(
        reason=denied.reason.value,
        message=said,
        headroom_mib=denied.headroom_mib,
        ceiling_mib=denied.ceiling_mib,
    )


def _progress(progress: Progress) -> pb.WarmFilesResponse:
    return pb.WarmFilesResponse(
        path=progress.path,
        done_bytes=progress.done_bytes,
        total_bytes=progress.total_bytes,
        stopped_short=progress.stopped_short,
    )


def _device(state: DeviceState, reserves: Sequence[pb.Reserve]) -> pb.DeviceMemory:
    budget, memory, reading = state.budget, state.memory, state.reading
    return pb.DeviceMemory(
        device=state.device.name,
        kind=pb.DeviceKind.ValueType(state.device.kind),
        description=state.device.description,
        reachable=reading.reachable,
        retry_at_unix_ms=reading.retry_at_unix_ms,
        total_mib=budget.total_mib,
        free_mib=memory.free_mib,
        leased_mib=memory.leased_mib,
        unmaterialised_mib=memory.unmaterialised_mib,
        floor_mib=budget.reserve_mib + budget.floors.background_mib,
        headroom=[
            pb.TierHeadroom(tier=common_pb2.Tier.ValueType(tier), headroom_mib=mib)
            for tier, mib in memory.headroom_mib.items()
        ],
        foreign_mib=memory.foreign_mib,
        reserves=reserves,
        processes=[
            pb.ProcessUse(pid=process.pid, used_mib=process.used_mib, name=process.name)
            for process in state.processes
        ],
    )
