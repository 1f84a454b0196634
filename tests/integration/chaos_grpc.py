"""Clients that handle permits themselves: Admit, then the granted engine, over gRPC."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc

from chassis.channel import PERMIT_ID, REQUEST_ID, open_channel
from chassis.status import fault_of
from cohabit.common.v1 import common_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc as rpc
from cohabit.simulated.v1 import simulated_pb2, simulated_pb2_grpc
from tests.integration.chaos_wishes import DEADLINE_S, End, How, Wish

if TYPE_CHECKING:
    Place = grpc.aio.UnaryStreamCall[pb.AdmitRequest, pb.AdmitResponse]

_CHILD_MODEL = "vectors"


class RefusedError(Exception):
    """A call has failed; `after` what."""

    def __init__(self, error: grpc.aio.AioRpcError, how: How) -> None:
        super().__init__(error.details())
        self.how = how
        self.reason = fault_of(error, "next").reason.value


@dataclass(frozen=True, slots=True)
class Caller:
    """One who knows the scheduler's address."""

    scheduler: "rpc.SchedulerServiceAsyncStub"

    async def ask(self, wish: Wish) -> list[End]:
        """Ask for it, and wait for its end or hang up; more than one, if it had a child."""
        began = time.monotonic()
        children: list[End] = []
        patience_s = DEADLINE_S if wish.hang_up_s is None else wish.hang_up_s
        end = End(wish, "complete")
        try:
            async with asyncio.timeout(patience_s):
                await self._served(wish, children)
        except TimeoutError:
            late = End(wish, "wrong", f"no end within {DEADLINE_S} s")
            end = late if wish.hang_up_s is None else End(wish, "hung up")
        except RefusedError as error:
            end = End(wish, error.how, error.reason)
        return [replace(end, took_s=time.monotonic() - began), *children]

    async def _served(self, wish: Wish, children: list[End]) -> None:
        async with self._admitted(wish) as (grant, place):
            if wish.way == "idle":
                await _until_it_lapses(place)
                return
            if wish.way != "parent":
                await _run(wish, grant)
                return
            own = asyncio.create_task(_run(wish, grant))
            try:
                await self._child(wish, grant.permit_id, children)
                await own
            finally:
                own.cancel()
                await asyncio.wait([own])

    async def _child(self, parent: Wish, permit_id: str, ends: list[End]) -> None:
        wish = replace(parent, id=f"{parent.id}-child", model=_CHILD_MODEL, work_ms=500)
        try:
            async with self._admitted(wish, permit_id) as (grant, _):
                await _run(wish, grant)
        except RefusedError as error:
            ends.append(End(wish, error.how, error.reason))
        except asyncio.CancelledError:
            ends.append(End(wish, "hung up"))  # as its parent has
            raise
        else:
            ends.append(End(wish, "complete"))

    @asynccontextmanager
    async def _admitted(
        self, wish: Wish, parent_permit_id: str = ""
    ) -> AsyncIterator[tuple[pb.AdmitResponse.Granted, "Place"]]:
        """A permit for as long as the block lasts."""
        request = pb.AdmitRequest(
            model=wish.model,
            tier=common_pb2.Tier.Value(f"TIER_{wish.tier.upper()}"),
            fairness_key=wish.key,
            request_id=wish.id,
            try_acquire=wish.way == "try",
            parent_permit_id=parent_permit_id,
        )
        place = self.scheduler.Admit(request, metadata=((REQUEST_ID, wish.id),))
        try:
            yield await _granted(place), place
        finally:
            place.cancel()


async def _granted(place: "Place") -> pb.AdmitResponse.Granted:
    try:
        async for event in place:
            if event.HasField("granted"):
                return event.granted
    except grpc.aio.AioRpcError as error:
        raise RefusedError(error, "refused") from None
    raise AssertionError("the scheduler ended the stream before it had granted anything")


async def _until_it_lapses(place: "Place") -> None:
    try:
        async for event in place:
            raise AssertionError(f"after the grant came {event}")
    except grpc.aio.AioRpcError as error:
        raise RefusedError(error, "refused") from None
    raise AssertionError("the scheduler ended the stream of a permit without a word")


async def _run(wish: Wish, grant: pb.AdmitResponse.Granted) -> None:
    request = simulated_pb2.RunRequest(
        model=grant.model_key,
        work_ms=wish.work_ms,
        transient_lease_id=grant.transient_lease_id,
        transient_mib=grant.transient_mib,
    )
    metadata = ((REQUEST_ID, wish.id), (PERMIT_ID, grant.permit_id))
    async with open_channel(grant.address) as channel:
        engine: simulated_pb2_grpc.SimulatedServiceAsyncStub
        engine = simulated_pb2_grpc.SimulatedServiceStub(channel)
        done = 0
        try:
            async for event in engine.Run(request, metadata=metadata):
                done += event.HasField("done")
        except grpc.aio.AioRpcError as error:
            raise RefusedError(error, "broken") from None
    assert done == 1, f"{done} ends of {wish}"
