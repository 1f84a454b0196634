"""The bytes of a result over HTTP: whole or in part, streamed as the job service gives them.

What has begun cannot become an error any more: when bytes stay away, the connection ends early, and
`content-length` tells the client that they are not all.
"""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chassis.errors import Fault, Reason
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge import errors
from edge.disconnect import while_connected
from edge.entrance import Door
from edge.jobs.calls import JobCalls
from edge.jobs.ranges import (
    Span,
    UnchangedError,
    UnsatisfiableError,
    etag_of,
    wanted_span,
)
from edge.jobs.reading import role_of
from edge.keys.caller import caller_of

_MAIN = (pb.RESULT_ROLE_IMAGE, pb.RESULT_ROLE_CUTOUT)


def result_of(job: pb.Job, result_id: str) -> pb.Result:
    """The one of that name. Raises Fault."""
    for result in job.results:
        if result.result_id == result_id:
            return _unexpired(result)
    name = result_id[:64]
    raise Fault(Reason.RESULT_NOT_FOUND, f"The job has no result `{name}`; {_standing(job)}.")


def main_result(job: pb.Job) -> pb.Result:
    """The picture that was asked for, the first of several. Raises Fault."""
    if not job.results:
        raise Fault(Reason.RESULT_NOT_FOUND, f"There is no result: {_standing(job)}.")
    return _unexpired(next((it for it in job.results if it.role in _MAIN), job.results[0]))


def _unexpired(result: pb.Result) -> pb.Result:
    if result.expired:
        message = "The file of this result is kept no longer; submit the job again."
        raise Fault(Reason.RESULT_EXPIRED, message)
    return result


def _standing(job: pb.Job) -> str:
    if job.state == pb.JOB_STATE_SUCCEEDED:
        return f"it has {len(job.results)}, which GET /v1/jobs/{job.job_id} lists"
    if job.state == pb.JOB_STATE_FAILED:
        return f"the job failed ({job.failure.message})"
    if job.state == pb.JOB_STATE_CANCELLED:
        return "the job was cancelled"
    return "the job is not over yet; its events tell when it is"


@dataclass(frozen=True, slots=True)
class Results:
    """Answers with bytes; the open answers are bounded by the door."""

    calls: JobCalls
    door: Door
    stall_s: float
    """A client that takes nothing for this long is left."""

    def answer(self, job_id: str, result: pb.Result, request: Request) -> Response:
        """The result, or the part of it that is wanted."""
        etag = etag_of(result.sha256)
        headers = {
            "etag": etag,
            "accept-ranges": "bytes",
            "cache-control": "private, no-cache",
            "x-content-type-options": "nosniff",
        }
        size = result.size_bytes
        try:
            span = wanted_span(request.headers, size, etag)
        except UnchangedError:
            return Response(status_code=304, headers=headers)
        except UnsatisfiableError:
            return _beyond(size)
        status = 200 if span is None else 206
        if span is not None:
            headers["content-range"] = f"bytes {span.first}-{span.end - 1}/{size}"
        headers["content-disposition"] = f'inline; filename="{_file_name(job_id, result)}"'
        owner = caller_of(request.scope).name
        return _Bytes(self, owner, job_id, result, span or Span(0, size), status, headers)


def _beyond(size_bytes: int) -> Response:
    message = f"The result has {size_bytes} bytes; ask for a range within them."
    answer = errors.response(Fault(Reason.INVALID_OFFSET, message))
    answer.headers["content-range"] = f"bytes */{size_bytes}"
    return answer


def _file_name(job_id: str, result: pb.Result) -> str:
    ending = result.mime_type.rpartition("/")[2]
    plain = "".join(char for char in job_id if char.isalnum() or char in "-_")
    return f"{plain}-{role_of(result)}-{result.index}.{ending}"


class _Bytes(Response):
    """Streams when it is sent, as every answer of the framework is."""

    def __init__(
        self,
        results: Results,
        owner: str,
        job_id: str,
        result: pb.Result,
        span: Span,
        status: int,
        headers: dict[str, str],
    ) -> None:
        headers["content-length"] = str(span.end - span.first)
        super().__init__(None, status, headers, media_type=result.mime_type)
        self._results, self._span = results, span
        self._owner, self._job_id, self._result_id = owner, job_id, result.result_id
        self._began = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Stream. Raises Fault before the first byte."""
        try:
            with self._results.door.enter():
                await while_connected(receive, self._stream(send))
        except TimeoutError:
            errors.failure.set(Reason.SLOW_READER)
        except Fault as fault:
            if not self._began:
                raise
            errors.failure.set(fault.reason)

    async def _stream(self, send: Send) -> None:
        pieces = self._results.calls.read(self._owner, self._job_id, self._result_id, self._span)
        async with aclosing(pieces):
            async for data in pieces:
                await self._write(data, send)
        await self._write(b"", send, more=False)

    async def _write(self, data: bytes, send: Send, *, more: bool = True) -> None:
        async with asyncio.timeout(self._results.stall_s):
            if not self._began:
                self._began = True
                start = {"status": self.status_code, "headers": self.raw_headers}
                await send({"type": "http.response.start", **start})
            await send({"type": "http.response.body", "body": data, "more_body": more})
