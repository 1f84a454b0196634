"""A place in the scheduler's queue: from asking to run, over waiting and loading, to the grant.

A place that was queued survives the scheduler's absence for `resume_s`: it is asked for again with
the token that its last event carried. A scheduler that goes silent is taken as absent. What is done
with a grant is said next door, in `admission`.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from chassis import log, tracing
from chassis.backoff import RECONNECT
from chassis.channel import call_metadata
from chassis.errors import Fault, Reason, not_implemented
from chassis.status import fault_of
from chassis.tracing import Span
from cohabit.common.v1 import common_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb

if TYPE_CHECKING:
    from cohabit.scheduler.v1 import scheduler_pb2_grpc

_WHY_S = 1.0


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request needs from the scheduler."""

    model: str
    """A model's key, or a family."""
    tier: "common_pb2.Tier.ValueType"
    max_output_tokens: int = 0
    prompt_tokens: int = 0
    """Counted, to choose between twins; 0: not counted."""
    key: str = ""
    """Of the client, among whom capacity is shared; empty: that of all who have none."""
    lane: str = ""
    """Empty: the model's."""
    try_acquire: bool = False
    """Be refused rather than wait."""
    parent_permit_id: str = ""
    """The permit on whose behalf it runs; empty: none."""
    preferred_mib: int = 0
    """Device memory it adds at its peak; 0: what the model's footprint says."""
    minimum_mib: int = 0
    """The least of that it can do with; 0: all of it."""


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
    silence_s: float = 20.0
    """The scheduler's next word to a request that waits; it has one every few seconds."""


@dataclass(slots=True)
class Place:
    """One request's place in the queue, over as many Admit calls as it takes."""

    scheduler: "scheduler_pb2_grpc.SchedulerServiceAsyncStub"
    ask: Ask
    waits: Waits
    granted: pb.AdmitResponse.Granted = field(default_factory=pb.AdmitResponse.Granted)
    _call: Any = None
    _token: str = ""
    _span: Span = tracing.NOTHING
    _marked: type[Queued] | type[Loading] | None = None

    async def until_granted(self) -> AsyncGenerator[Queued | Loading, None]:
        """What happens while it waits; ends when `granted` is set. Raises Fault.

        Once more after a `close`, when the grant was of no use: the place in the queue is kept.
        """
        loop = asyncio.get_running_loop()
        failures, give_up_at = 0, 0.0
        with tracing.begin("admission") as self._span:
            while True:
                answer_by = loop.time() + self.waits.answer_s
                if failures:
                    answer_by = min(answer_by, give_up_at)
                self._open()
                try:
                    response = await self._read_by(answer_by)
                    failures = 0
                    while not response.HasField("granted"):
                        event = self._progress(response)
                        self._mark(event)
                        yield event
                        response = await self._read_by(loop.time() + self.waits.silence_s)
                    self.granted = response.granted
                    self._token = response.granted.resume_token or self._token
                    self._mark_grant()
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

    async def why_over(self) -> Fault | None:
        """Why the scheduler ended the permit; None when it does not say at once.

        Without a retry delay: its work had begun, and is not to be repeated unasked.
        """
        loop = asyncio.get_running_loop()
        try:
            await self._read_by(loop.time() + _WHY_S)
        except Fault as fault:
            return Fault(fault.reason, fault.message, metadata=fault.metadata)
        except _SchedulerGoneError:
            pass
        return None

    def close(self) -> None:
        """Give the place, or the permit, back."""
        if self._call is not None:
            self._call.cancel()

    def _open(self) -> None:
        self._call = self.scheduler.Admit(
            pb.AdmitRequest(
                model=self.ask.model,
                lane=self.ask.lane,
                tier=self.ask.tier,
                fairness_key=self.ask.key,
                request_id=log.request_id.get(),
                try_acquire=self.ask.try_acquire,
                parent_permit_id=self.ask.parent_permit_id,
                resume_token=self._token,
                preferred_transient_mib=self.ask.preferred_mib,
                minimum_transient_mib=self.ask.minimum_mib,
                prompt_tokens=self.ask.prompt_tokens,
                max_output_tokens=self.ask.max_output_tokens,
            ),
            timeout=self.waits.request_s,
            metadata=call_metadata(under=self._span),
        )

    def _mark(self, event: Queued | Loading) -> None:
        """Tell the trace when it begins to wait, or its model to load: not each step of that."""
        if not self._span or self._marked is type(event):
            return
        self._marked = type(event)
        if isinstance(event, Queued):
            self._span.event("queued", {"cohabit.position": event.position})
        else:
            self._span.event("loading", {"cohabit.model": event.model_key})

    def _mark_grant(self) -> None:
        if self._span:
            self._span.event("granted")
            said = {"cohabit.queue_wait_ms": self.granted.queue_wait_ms}
            self._span.tell({"cohabit.model": self.granted.model_key, **said})

    async def _read_by(self, at: float) -> pb.AdmitResponse:
        try:
            async with asyncio.timeout_at(at):
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
