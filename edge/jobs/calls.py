"""Calls of the job service. Its streams are taken up again where they broke off.

A job outlives a restart of its service, so who watches it, or reads what it made, need not notice
one: for `resume_s` of absence the call is made again, from what was told last.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from chassis.backoff import RECONNECT
from chassis.channel import call_metadata
from chassis.errors import Fault, Reason
from chassis.status import fault_of
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.jobs.ranges import Span
from edge.jobs.reading import FINAL

if TYPE_CHECKING:
    from grpc.aio import UnaryStreamCall, UnaryUnaryCall

    from cohabit.jobs.v1.jobs_pb2_grpc import JobServiceAsyncStub

PEER = "jobs"
SUBMIT_S = 60.0
"""Up to 80 MiB are put on a disk."""
ASK_S = 10.0
SILENCE_S = 30.0
"""The service says something at least every 10 s."""
_NOBODY = ""
"""Who asks whether the service answers: in open mode, the one owner of all jobs."""

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class JobCalls:
    """Asks the job service; every method raises Fault, for another owner's job as for none."""

    stub: "JobServiceAsyncStub"
    resume_s: float
    """How long a stream outlives the service's absence."""
    stream_s: float
    """Deadline of one call of a stream; a longer one is made of several."""

    async def submit(self, request: pb.SubmitJobRequest) -> pb.SubmitJobResponse:
        """Hand a job in; when this answers, it is on disk."""
        return await _answer(
            self.stub.SubmitJob(request, timeout=SUBMIT_S, metadata=call_metadata())
        )

    async def job(self, owner: str, job_id: str) -> pb.Job:
        """A job with its request."""
        request = pb.GetJobRequest(owner=owner, job_id=job_id)
        call = self.stub.GetJob(request, timeout=ASK_S, metadata=call_metadata())
        return (await _answer(call)).job

    async def jobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        """A page of jobs."""
        return await _answer(self.stub.ListJobs(request, timeout=ASK_S, metadata=call_metadata()))

    async def ready(self, within_s: float) -> None:
        """Raises Fault unless the service answers."""
        request = pb.ListJobsRequest(owner=_NOBODY, page_size=1)
        await _answer(self.stub.ListJobs(request, timeout=within_s, metadata=call_metadata()))

    async def cancel(self, owner: str, job_id: str) -> pb.Job:
        """Ask a job to end; as it stands now."""
        request = pb.CancelJobRequest(owner=owner, job_id=job_id)
        call = self.stub.CancelJob(request, timeout=ASK_S, metadata=call_metadata())
        return (await _answer(call)).job

    async def watch(self, owner: str, job_id: str, seen: int) -> AsyncGenerator[pb.Job, None]:
        """The job after every change behind revision `seen`, to its final state."""
        told, over = 0, False

        def call() -> "UnaryStreamCall[Any, pb.WatchJobResponse]":
            request = pb.WatchJobRequest(owner=owner, job_id=job_id, after_revision=seen)
            return self.stub.WatchJob(request, timeout=self.stream_s, metadata=call_metadata())

        async with aclosing(self._resumed(call, lambda: over, lambda: told)) as messages:
            async for message in messages:
                seen, over = message.job.revision, message.job.state in FINAL
                told += 1
                yield message.job

    async def read(
        self, owner: str, job_id: str, result_id: str, span: Span
    ) -> AsyncGenerator[bytes, None]:
        """These bytes of a result, in pieces of at most 1 MiB."""
        at = span.first

        def call() -> "UnaryStreamCall[Any, pb.ReadResultResponse]":
            request = pb.ReadResultRequest(
                owner=owner, job_id=job_id, result_id=result_id, offset_bytes=at
            )
            return self.stub.ReadResult(request, timeout=self.stream_s, metadata=call_metadata())

        read = self._resumed(call, lambda: at >= span.end, lambda: at)
        async with aclosing(read) as messages:
            async for message in messages:
                data = message.data[: span.end - at]
                at += len(data)
                yield data

    async def _resumed(
        self,
        begin: "Callable[[], UnaryStreamCall[Any, A]]",
        over: Callable[[], bool],
        progress: Callable[[], int],
    ) -> AsyncGenerator[A, None]:
        """What the stream says until it is over, in as many calls as that takes.

        Given up once calls have made no `progress` for `resume_s`.
        """
        loop = asyncio.get_running_loop()
        failures, give_up_at = 0, 0.0
        while not over():
            call, before = begin(), progress()
            try:
                while not over():
                    yield await _next(call)
            except _GoneError as gone:
                failures = failures + 1 if progress() == before else 1
                give_up_at = give_up_at if failures > 1 else loop.time() + self.resume_s
                delay_s = RECONNECT.delay_s(failures)
                if loop.time() + delay_s >= give_up_at:
                    raise gone.fault from None
                await asyncio.sleep(delay_s)
            finally:
                call.cancel()


class _GoneError(Exception):
    """The service does not answer; `fault` is what to say if it stays so."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


async def _answer(call: "UnaryUnaryCall[Any, A]") -> A:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise fault_of(error, PEER) from None


async def _next(call: "UnaryStreamCall[Any, A]") -> Any:
    try:
        async with asyncio.timeout(SILENCE_S):
            message = await call.read()
    except TimeoutError:
        raise _GoneError(_silent()) from None
    except grpc.aio.AioRpcError as error:
        fault = fault_of(error, PEER)
        if fault.reason in (Reason.SERVICE_UNAVAILABLE, Reason.DEADLINE_EXCEEDED):
            raise _GoneError(fault) from None
        raise fault from None
    if message is grpc.aio.EOF:  # it was told to stop, and had manners
        raise _GoneError(_silent())
    return message


def _silent() -> Fault:
    message = f"The {PEER} service does not answer at the moment; try again shortly."
    return Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
