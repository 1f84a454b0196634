"""Calls of the language model service to the scheduler and to its own engines."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc

from chassis.channel import call_metadata, open_channel
from chassis.errors import Fault, Reason
from chassis.place import Ask, Place, Waits
from chassis.status import fault_of
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2_grpc

_WAITS = Waits(answer_s=10.0, resume_s=10.0, request_s=3600.0)


class Scheduler:
    """Admission for those who call this service instead of going through the edge."""

    def __init__(self, address: str) -> None:
        self._channel = open_channel(address)
        self._stub: scheduler_pb2_grpc.SchedulerServiceAsyncStub = (
            scheduler_pb2_grpc.SchedulerServiceStub(self._channel)
        )

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def generate(
        self, request: llm_pb2.GenerateRequest
    ) -> AsyncGenerator[llm_pb2.GenerateResponse, None]:
        """Admit the request, then relay its engine's answer. Raises Fault."""
        ask = Ask(request.model, common_pb2.TIER_UNSPECIFIED, request.max_tokens)
        place = Place(self._stub, ask, _WAITS)
        try:
            async with aclosing(place.until_granted()) as waiting:
                async for _ in waiting:
                    pass
            async with aclosing(_run(place, request)) as answer:
                async for message in answer:
                    yield message
        finally:
            place.close()


async def _run(
    place: Place, request: llm_pb2.GenerateRequest
) -> AsyncGenerator[llm_pb2.GenerateResponse, None]:
    async with open_channel(place.granted.address) as channel:
        stub: llm_pb2_grpc.LanguageModelServiceAsyncStub = llm_pb2_grpc.LanguageModelServiceStub(
            channel
        )
        metadata = call_metadata(place.granted.permit_id)
        call = stub.Generate(request, timeout=_WAITS.request_s, metadata=metadata)
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error, "engine")
            if fault.reason is Reason.SERVICE_UNAVAILABLE:
                stopped = "The engine that served this request stopped; send it again."
                raise Fault(Reason.ENGINE_CRASHED, stopped, retry_after_s=1.0) from None
            raise fault from None
        finally:
            call.cancel()


async def count_tokens(
    address: str, request: llm_pb2.CountTokensRequest
) -> llm_pb2.CountTokensResponse:
    """Have a running engine count. Raises Fault."""
    async with open_channel(address) as channel:
        stub: llm_pb2_grpc.LanguageModelServiceAsyncStub = llm_pb2_grpc.LanguageModelServiceStub(
            channel
        )
        try:
            return await stub.CountTokens(request, timeout=_COUNT_S)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, "engine") from None


_COUNT_S = 30.0
