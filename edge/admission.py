"""A place in the scheduler's queue, and the engine call it leads to, as one stream of events.

    queued* → loading* → granted → engine messages*

Whatever way a request ends, the engine's call ends first and the place in the queue after it.
Once granted, the engine's call no longer depends on the scheduler. Nothing here knows HTTP.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc

from chassis.channel import call_metadata
from chassis.errors import Fault, Reason
from chassis.place import Ask, Loading, Place, Queued, Waits
from chassis.status import fault_of
from cohabit.llm.v1 import llm_pb2
from edge.channels import Channels

if TYPE_CHECKING:
    from cohabit.llm.v1 import llm_pb2_grpc
    from cohabit.scheduler.v1 import scheduler_pb2_grpc

    LanguageChannels = Channels[llm_pb2_grpc.LanguageModelServiceAsyncStub]


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
        place = Place(self._scheduler, ask, self._waits)
        try:
            async with aclosing(place.until_granted()) as waiting:
                async for event in waiting:
                    yield event
            grant = place.granted
            request.model = grant.model_key
            async with self._engines.to(grant.address) as engine:
                metadata = call_metadata(grant.permit_id)
                call = engine.Generate(request, timeout=self._waits.request_s, metadata=metadata)
                try:
                    while (message := await _read_engine(call)) is not None:
                        yield message
                finally:
                    call.cancel()
        finally:
            place.close()


async def _read_engine(call: Any) -> llm_pb2.GenerateResponse | None:
    """The engine's next message; None at its end. Raises Fault."""
    try:
        message = await call.read()
    except grpc.aio.AioRpcError as error:
        fault = fault_of(error, "engine")
        if fault.reason is Reason.SERVICE_UNAVAILABLE:
            raise engine_crashed() from None
        raise fault from None
    return None if message is grpc.aio.EOF else message


def engine_crashed() -> Fault:
    """What a request whose engine is gone ends with."""
    message = "The engine that served this request stopped before it was done; send it again."
    return Fault(Reason.ENGINE_CRASHED, message, retry_after_s=1.0)
