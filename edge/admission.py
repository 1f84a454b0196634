"""A place in the scheduler's queue, and the engine call it leads to, as one stream of events.

    queued* → loading* → granted → engine messages*

An engine that is gone before it has begun costs the request nothing but another turn; once an
engine has taken it in, it is never sent again. Whatever way a request ends, the engine's call
ends first and the place in the queue after it. Once granted, the engine's call no longer depends
on the scheduler. Nothing here knows HTTP.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc

from chassis.backoff import RECONNECT
from chassis.channel import TAKEN_IN, call_metadata
from chassis.errors import Fault, Reason
from chassis.place import Ask, Loading, Place, Queued, Waits
from chassis.status import fault_of
from cohabit.llm.v1 import llm_pb2
from cohabit.scheduler.v1 import scheduler_pb2
from edge.channels import Channels

if TYPE_CHECKING:
    from cohabit.llm.v1 import llm_pb2_grpc
    from cohabit.scheduler.v1 import scheduler_pb2_grpc

    LanguageChannels = Channels[llm_pb2_grpc.LanguageModelServiceAsyncStub]


_TRIES = 5
"""Grants a request may use up on engines that turn out to be gone."""

Generated = Queued | Loading | llm_pb2.GenerateResponse


class Admission:
    """Runs requests on engines, each with a permit of its own."""

    def __init__(
        self,
        scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub",
        engines: "LanguageChannels",
        waits: Waits,
    ) -> None:
        self._scheduler = scheduler
        self._engines = engines
        self._waits = waits

    async def generate(
        self, ask: Ask, request: llm_pb2.GenerateRequest
    ) -> AsyncGenerator[Generated, None]:
        """Everything that happens to `request`, to its last message.

        Raises Fault. Close it (`aclosing`) to give everything back, at any point.
        """
        for tries in range(1, _TRIES + 1):
            place = Place(self._scheduler, ask, self._waits)
            try:
                async with aclosing(place.until_granted()) as waiting:
                    async for event in waiting:
                        yield event
                async with aclosing(self._run(place.granted, request)) as answer:
                    async for message in answer:
                        yield message
                return
            except _NotTakenInError:
                if tries == _TRIES:
                    raise engine_crashed() from None
            finally:
                place.close()
            await asyncio.sleep(RECONNECT.delay_s(tries))

    async def _run(
        self, grant: scheduler_pb2.AdmitResponse.Granted, request: llm_pb2.GenerateRequest
    ) -> AsyncGenerator[llm_pb2.GenerateResponse, None]:
        request.model = grant.model_key
        async with self._engines.to(grant.address) as engine:
            metadata = call_metadata(grant.permit_id)
            call = engine.Generate(request, timeout=self._waits.request_s, metadata=metadata)
            try:
                began = False
                while (message := await _read_engine(call, began=began)) is not None:
                    began = True
                    yield message
            finally:
                call.cancel()


class _NotTakenInError(Exception):
    """The engine that was granted had gone, or the grant had lapsed, before anything began."""


async def _read_engine(call: Any, *, began: bool) -> llm_pb2.GenerateResponse | None:
    """The engine's next message; None at its end. Raises Fault, or _NotTakenInError."""
    try:
        message = await call.read()
    except grpc.aio.AioRpcError as error:
        fault = fault_of(error, "engine")
        gone = fault.reason in (Reason.SERVICE_UNAVAILABLE, Reason.PERMIT_REVOKED)
        # A request that may itself have ended the engine is not sent to the next one.
        if gone and not began and TAKEN_IN not in dict(error.initial_metadata() or ()):
            raise _NotTakenInError from None
        if fault.reason is Reason.SERVICE_UNAVAILABLE:
            raise engine_crashed() from None
        raise fault from None
    return None if message is grpc.aio.EOF else message


def engine_crashed() -> Fault:
    """What a request whose engine is gone ends with."""
    message = "The engine that served this request stopped before it was done; send it again."
    return Fault(Reason.ENGINE_CRASHED, message, retry_after_s=1.0)
