"""The leases of a model service: adopted from the scheduler, renewed while they are used."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import grpc

from chassis import log
from chassis.backoff import RECONNECT
from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.broker.v1 import broker_pb2 as pb
from cohabit.broker.v1 import broker_pb2_grpc as rpc
from cohabit.common.v1 import common_pb2
from hosting.values import Extra

_TIMEOUT_S = 5.0
_ASK_S = 2.0
"""How long a load waits to hear whether it has its optional memory."""
RELEASE_S = 2.0
"""A model that failed is not said to have, before its lease is released: not for long."""
_RENEW_EVERY_S = 5.0
"""At least this often, and thrice in the time that a lease lives."""
_SHORTEST_S = 0.05
RETRY_S = 1.0
"""How long a broker that is away, or has said no, is left alone."""
_MOST_OWED = 1024
"""Releases that are kept for a broker that is away; beyond them a lease ends by its TTL."""


class LeaseBook:
    """Calls to the broker about the leases of one model service."""

    def __init__(self, broker: str, service: str, *, renew_every_s: float = _RENEW_EVERY_S) -> None:
        self._renew_every_s = renew_every_s
        self._channel = open_channel(broker)
        self._stub: rpc.BrokerServiceAsyncStub = rpc.BrokerServiceStub(self._channel)
        self._service = service
        self._owed: dict[str, None] = {}
        """What the broker is yet to be told is released."""
        self._paying: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Close the channel; what is owed still ends by its TTL."""
        if self._paying is not None:
            self._paying.cancel()
            await asyncio.wait([self._paying])
        await self._channel.close()

    async def adopt(self, lease_id: str, materialised_mib: int) -> pb.Lease:
        """Renew a lease, telling what of it is in use. Raises Fault LEASE_NOT_FOUND and others."""
        request = pb.RenewLeaseRequest(lease_id=lease_id, materialised_mib=materialised_mib)
        try:
            return (await self._stub.RenewLease(request, timeout=_TIMEOUT_S)).lease
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "broker") from None

    async def ask(
        self, key: str, extra: Extra, device: str, leave_mib: int
    ) -> pb.AcquireLeaseResponse:
        """A lease for optional memory of model `key`, or the denial; `leave_mib` are left free
        beside it. Raises Fault when the broker does not answer.

        Asked for in the background: nobody leaves for it, and it takes nothing that the floors keep
        for others.
        """
        request = pb.AcquireLeaseRequest(
            holder=f"{self._service}/{key}+{extra.name}",  # no model's key has a plus sign
            device=device,
            kind=pb.LEASE_KIND_RESIDENT,
            tier=common_pb2.TIER_BACKGROUND,
            preferred_mib=extra.mib,
            leave_mib=leave_mib,
        )
        try:
            return await self._stub.AcquireLease(request, timeout=_ASK_S)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "broker") from None

    async def find(self, key: str, lease_id: str) -> pb.Lease | None:
        """The lease of that id, if it is one for model `key` of this service. Raises Fault."""
        holder = f"{self._service}/{key}"
        request = pb.ListLeasesRequest(holder_prefix=holder)
        try:
            listed = await self._stub.ListLeases(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "broker") from None
        wanted = (lease_id, holder)
        return next((it for it in listed.leases if (it.lease_id, it.holder) == wanted), None)

    async def release(self, lease_id: str) -> None:
        """Give a lease back; a broker that is away is told when it has come back."""
        if not await self._told(lease_id) and len(self._owed) < _MOST_OWED:
            self._owed[lease_id] = None
            if self._paying is None or self._paying.done():
                self._paying = asyncio.create_task(self._pay())

    async def _pay(self) -> None:
        while self._owed:
            await asyncio.sleep(RETRY_S)
            for lease_id in tuple(self._owed):
                if not await self._told(lease_id):
                    break
                del self._owed[lease_id]

    async def _told(self, lease_id: str) -> bool:
        request = pb.ReleaseLeaseRequest(lease_id=lease_id)
        try:
            await self._stub.ReleaseLease(request, timeout=RELEASE_S)
        except grpc.aio.AioRpcError as error:
            log.get().warning("not released yet", lease=lease_id, code=error.code().name)
            return False
        return True

    async def release_leftovers(self, living: Callable[[], Collection[str]]) -> None:
        """Release what an earlier life of this service held: its engines died with it.

        Asks until the broker answers; `living` says which leases this life holds by then.
        """
        for lease in await self._inherited():
            # One that nobody has taken up may be on its way from the scheduler to us.
            if lease.renewed_unix_ms and lease.lease_id not in living():
                log.get().info("released a leftover lease", lease=lease.lease_id)
                await self.release(lease.lease_id)

    async def _inherited(self) -> Sequence[pb.Lease]:
        request, failures = pb.ListLeasesRequest(holder_prefix=f"{self._service}/"), 0
        while True:
            try:
                answer = await self._stub.ListLeases(
                    request, timeout=_TIMEOUT_S, wait_for_ready=True
                )
            except grpc.aio.AioRpcError as error:
                failures += 1
                log.get().debug("broker not there yet", code=error.code().name)
                await asyncio.sleep(RECONNECT.delay_s(failures))
            else:
                return answer.leases

    async def keep(
        self,
        lease: pb.Lease,
        materialised_mib: Callable[[], int],
        regained: Callable[[pb.Lease], None],
        sooner: asyncio.Event,
    ) -> None:
        """Renew `lease` for ever; returns only when it is lost and cannot be had again.

        One that was lost and granted anew has another id: `regained` is told. While the broker is
        away there is nothing to do but ask again: it keeps its ledger over a restart. Setting
        `sooner` has the next renewal made at once.
        """
        while True:
            wait_s = self._renew_every_s
            try:
                wait_s = min(wait_s, _third_s(await self.adopt(lease.lease_id, materialised_mib())))
            except Fault as fault:
                if fault.reason is Reason.LEASE_NOT_FOUND:
                    answer = await self._again(lease)
                    if answer is not None and not answer.HasField("lease"):
                        return
                    if answer is not None:
                        lease, wait_s = answer.lease, 0.0
                        log.get().warning("lease regained", lease=lease.lease_id)
                        regained(lease)
                wait_s = min(wait_s, RETRY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await sooner.wait()
            sooner.clear()

    async def _again(self, lease: pb.Lease) -> pb.AcquireLeaseResponse | None:
        """A lease like `lease`, or the denial; None while the broker does not answer."""
        request = pb.AcquireLeaseRequest(
            holder=lease.holder,
            device=lease.device,
            kind=lease.kind,
            tier=common_pb2.TIER_PAID,  # the memory is in use already
            preferred_mib=lease.granted_mib,
        )
        try:
            return await self._stub.AcquireLease(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            log.get().warning("lease not regained yet", code=error.code().name)
            return None


def _third_s(lease: pb.Lease) -> float:
    """A third of the time that a lease which has just been renewed lives on."""
    return max(_SHORTEST_S, (lease.expires_unix_ms - lease.renewed_unix_ms) / 3000)
