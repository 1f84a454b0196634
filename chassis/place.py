"""A place in the scheduler's queue: from asking to run, over waiting and loading, to the grant.

A place that was queued survives the scheduler's absence for `resume_s`: it is asked for again with
the token that its `queued` event carried. Used by whoever calls engines: the edge, and the model
services on behalf of people with grpcurl.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from chassis import log
from chassis.backoff import RECONNECT
from chassis.channel import call_metadata
from chassis.errors import Fault, Reason, not_implemented
from chassis.status import fault_of
from cohabit.common.v1 import common_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb

if TYPE_CHECKING:
    from cohabit.scheduler.v1 import scheduler_pb2_grpc


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request needs from the scheduler."""

    model: str
    tier: "common_pb2.Tier.ValueType"
    max_output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Queued:
    """It waits; `position` requests stand before it."""

    position: int


@dataclass(frozen=True, slots=True)
class Loading:
    """Its model is being loaded; `progress` from 0 to 1."""

    model_key: str
    progress: float


@dataclass(frozen=True, slots=True)
class Waits:
    """How long each wait may take."""

    answer_s: float
    """The scheduler's first word."""
    resume_s: float
    """The scheduler's absence, for a request that was queued."""
    request_s: float
    """All of it."""


@dataclass(slots=True)
class Place:
    """One request's place in the queue, over as many Admit calls as it takes."""

    scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub"
    ask: Ask
    waits: Waits
    granted: pb.AdmitResponse.Granted = field(default_factory=pb.AdmitResponse.Granted)
    _call: Any = None
    _token: str = ""

    async def until_granted(self) -> AsyncGenerator[Queued | Loading, None]:
        """What happens while it waits; ends when `granted` is set. Raises Fault."""
        loop = asyncio.get_running_loop()
        failures, give_up_at = 0, 0.0
        while True:
            answer_by = loop.time() + self.waits.answer_s
            if failures:
                answer_by = min(answer_by, give_up_at)
            self._open()
            try:
                response = await self._first(answer_by)
                failures = 0
                while not response.HasField("granted"):
                    yield self._progress(response)
                    response = await self._read()
                self.granted = response.granted
                return
            except _SchedulerGoneError as gone:
                self.close()
                failures += 1
                give_up_at = give_up_at if failures > 1 else loop.time() + self.waits.resume_s
                delay_s = RECONNECT.delay_s(failures)
                if not self._token or loop.time() + delay_s >= give_up_at:
                    raise gone.fault from None
                log.get().debug("resuming", failures=failures)
                await asyncio.sleep(delay_s)

    def close(self) -> None:
        """Give the place, or the permit, back."""
        if self._call is not None:
            self._call.cancel()

    def _open(self) -> None:
        self._call = self.scheduler.Admit(
            pb.AdmitRequest(
                model=self.ask.model,
                tier=self.ask.tier,
                request_id=log.request_id.get(),
                resume_token=self._token,
                max_output_tokens=self.ask.max_output_tokens,
            ),
            timeout=self.waits.request_s,
            metadata=call_metadata(),
        )

    async def _first(self, answer_by: float) -> pb.AdmitResponse:
        try:
            async with asyncio.timeout_at(answer_by):
                return await self._read()
        except TimeoutError:
            raise _SchedulerGoneError(_no_answer()) from None

    async def _read(self) -> pb.AdmitResponse:
        try:
            response = await self._call.read()
        except grpc.aio.AioRpcError as error:
            fault = fault_of(error, "scheduler")
            if fault.reason is Reason.SERVICE_UNAVAILABLE:
                raise _SchedulerGoneError(fault) from None
            raise fault from None
        if response is grpc.aio.EOF:
            raise _SchedulerGoneError(_no_answer())
        assert isinstance(response, pb.AdmitResponse)  # noqa: S101 - for the type checker
        return response

    def _progress(self, response: pb.AdmitResponse) -> Queued | Loading:
        match response.WhichOneof("event"):
            case "queued":
                self._token = response.queued.resume_token or self._token
                return Queued(response.queued.position)
            case "loading":
                return Loading(response.loading.model_key, response.loading.progress)
        raise not_implemented("Running a request on another machine")


class _SchedulerGoneError(Exception):
    """The scheduler does not answer; `fault` is what to say if it stays so."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def _no_answer() -> Fault:
    message = "The scheduler service does not answer at the moment; try again shortly."
    return Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
