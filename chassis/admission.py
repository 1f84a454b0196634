"""From the queue to the last word of an engine, as one stream: the one way to run on an engine.

    queued* → loading* → granted → engine messages*

An engine that is gone before it has begun costs a request nothing but another turn, at the place
it had; once an engine has taken it in, it is never sent again. Whatever way a request ends, the
engine's call ends first and the place in the queue after it. Once granted, the engine's call no
longer depends on the scheduler. Used by the edge, and by the model services on behalf of those who
call them; which call of which engine it is, they say.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import Message
from grpc.aio import UnaryStreamCall, UnaryUnaryCall

from chassis.backoff import RECONNECT
from chassis.channel import TAKEN_IN, call_metadata
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.place import Ask, Loading, Place, Queued, Waits
from chassis.status import fault_of

if TYPE_CHECKING:
    from cohabit.scheduler.v1 import scheduler_pb2_grpc

S = TypeVar("S")
R = TypeVar("R", bound=Message)

_GONE = (Reason.SERVICE_UNAVAILABLE, Reason.PERMIT_REVOKED, Reason.MODEL_EVICTED)
"""How an engine says that it will not take a request in."""
_TRIES = 5
"""Grants a request may use up on engines that turn out to be gone."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the engine's call is to be made with."""

    model_key: str
    """The model that serves, which may be another than was asked for."""
    timeout_s: float
    metadata: tuple[tuple[str, str], ...]
    queue_wait_ms: int
    """How long it waited for its turn."""
    transient_lease_id: str
    """Covers the memory it adds while it runs; empty: it was lent none."""
    transient_mib: int

    def lend_to(self, request: "Lent") -> None:
        """Say in a request who serves it, and what memory it is lent."""
        request.model = self.model_key
        request.transient_lease_id = self.transient_lease_id
        request.transient_mib = self.transient_mib


class Lent(Protocol):
    """A request that adds memory while it runs."""

    model: str
    transient_lease_id: str
    transient_mib: int


Start = Callable[[S, Turn], UnaryStreamCall[Any, R] | UnaryUnaryCall[Any, R]]
"""Begins the call on the engine that was granted; one with a single answer is a stream of one."""


class Admission(Generic[S]):
    """Runs requests on engines, each with a permit of its own. `S` is the engines' stub."""

    def __init__(
        self,
        scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub",
        engines: Channels[S],
        waits: Waits,
    ) -> None:
        self._scheduler = scheduler
        self._engines = engines
        self._waits = waits

    async def run(self, ask: Ask, start: Start[S, R]) -> AsyncGenerator[Queued | Loading | R, None]:
        """Everything that happens to a request, to its engine's last message.

        Raises Fault. Close it (`aclosing`) to give everything back, at any point.
        """
        place = Place(self._scheduler, ask, self._waits)
        try:
            for tries in range(1, _TRIES + 1):
                async with aclosing(place.until_granted()) as waiting:
                    async for event in waiting:
                        yield event
                began = False
                try:
                    # No generator in between: a stream is resumed through each, once a token.
                    async with self._calling(place, start) as read:
                        while (message := await read()) is not grpc.aio.EOF:
                            began = True
                            yield cast("R", message)
                    return
                except grpc.aio.AioRpcError as error:
                    if (fault := await _ending(error, place, began=began)) is not None:
                        raise fault from None
                    place.close()
                if tries < _TRIES:
                    await asyncio.sleep(RECONNECT.delay_s(tries))
            raise engine_crashed()
        finally:
            place.close()

    async def answer(self, ask: Ask, start: Start[S, R]) -> R:
        """As `run`, for who wants the engine's last message alone. Raises Fault."""
        last: R | None = None
        async with aclosing(self.run(ask, start)) as events:
            async for event in events:
                last = None if isinstance(event, Queued | Loading) else event
        if last is None:
            raise engine_crashed()
        return last

    @asynccontextmanager
    async def _calling(self, place: Place, start: Start[S, R]) -> AsyncIterator["_Read"]:
        """The engine's call, until the block ends."""
        grant = place.granted
        turn = Turn(
            model_key=grant.model_key,
            timeout_s=self._waits.request_s,
            metadata=call_metadata(grant.permit_id),
            queue_wait_ms=grant.queue_wait_ms,
            transient_lease_id=grant.transient_lease_id,
            transient_mib=grant.transient_mib,
        )
        async with self._engines.to(grant.address) as engine:
            call = start(engine, turn)
            try:
                yield _reading(call)
            finally:
                call.cancel()


_Read = Callable[[], Awaitable[object]]
"""The next message of an engine's call, or EOF."""


def _reading(call: UnaryStreamCall[Any, R] | UnaryUnaryCall[Any, R]) -> _Read:
    if not isinstance(call, Awaitable):
        return call.read
    whole, began = call, False

    async def once() -> object:
        nonlocal began
        if began:
            return grpc.aio.EOF
        began = True
        return await whole

    return once


async def _ending(error: grpc.aio.AioRpcError, place: Place, *, began: bool) -> Fault | None:
    """What the failure of an engine's call means to its request; None: it was not taken in, for
    the engine that was granted had gone, or the grant had lapsed, before anything began.
    """
    fault = fault_of(error, "engine")
    gone = fault.reason in _GONE
    # A request that may itself have ended the engine is not sent to the next one.
    if gone and not began and TAKEN_IN not in dict(error.initial_metadata() or ()):
        return None
    if fault.reason is Reason.SERVICE_UNAVAILABLE:
        return engine_crashed()
    if fault.reason is Reason.PERMIT_REVOKED:
        return await place.why_over() or _taken_back()
    return fault


def engine_crashed() -> Fault:
    """What a request whose engine is gone ends with."""
    message = "The engine that served this request stopped before it was done; send it again."
    return Fault(Reason.ENGINE_CRASHED, message, retry_after_s=1.0)


def _taken_back() -> Fault:
    # No retry delay: clients obey it by themselves, and would repeat work that was ended.
    message = "The request was ended before it was done: its permit was taken back."
    return Fault(Reason.PERMIT_REVOKED, message)
