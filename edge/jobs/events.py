"""GET /v1/jobs/{id}/events: the job after every change, as server-sent events, to its end.

    event: job
    id: 7
    data: {"id": "…", "revision": 7, …}

The id is the job's revision: a reader that comes back with `last-event-id` goes on behind it, and
one that has seen the end is told by 204 that there is no more.
"""

from contextlib import aclosing
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.entrance import Door
from edge.errors import bad_field
from edge.jobs.calls import JobCalls
from edge.jobs.reading import FINAL, job_view
from edge.keys.caller import caller_of
from edge.sse import Note, Patience, Source, stream_events

HEADER = "last-event-id"
_MOST_DIGITS = 19
_encode = msgspec.json.Encoder().encode


def event(job: pb.Job) -> bytes:
    """One change."""
    return b"event: job\nid: %d\ndata: %s\n\n" % (job.revision, _encode(job_view(job)))


def note(job: pb.Job) -> str:
    """Why nothing comes yet."""
    if job.state == pb.JOB_STATE_QUEUED:
        return f"queued behind {job.position}"
    return f"running, {job.progress:.0%}"


def revision_of(request: Request) -> int:
    """The last that the client has seen, 0 for none. Raises Fault."""
    given = request.headers.get(HEADER, "").strip()
    if not given:
        return 0
    if not given.isascii() or not given.isdecimal() or len(given) > _MOST_DIGITS:
        raise bad_field(HEADER, f"The header {HEADER} must be the `id` of an event of this job.")
    return int(given)


@dataclass(frozen=True, slots=True)
class Events:
    """Answers with streams; the open ones are bounded by the door."""

    calls: JobCalls
    door: Door
    patience: Patience

    async def of(self, job_id: str, request: Request) -> Response:
        """The stream of one job, or 204 when its reader has seen the end. Raises Fault."""
        seen, owner = revision_of(request), caller_of(request.scope).name
        job = await self.calls.job(owner, job_id)
        if job.state in FINAL and seen == job.revision:
            return Response(status_code=204)
        # A revision that there never was would wait for ever.
        behind = min(seen, job.revision)
        return _Stream(self, self.source(owner, job_id, behind))

    async def source(self, owner: str, job_id: str, seen: int) -> Source:
        """The events behind revision `seen`."""
        async with aclosing(self.calls.watch(owner, job_id, seen)) as jobs:
            async for job in jobs:
                if job.revision != seen or job.state in FINAL:
                    yield event(job)
                yield Note(note(job))
                seen = job.revision


class _Stream(Response):
    """Streams when it is sent, as every answer of the framework is."""

    def __init__(self, events: Events, source: Source) -> None:
        super().__init__()
        self._events, self._source = events, source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Stream. Raises Fault before the first byte."""
        with self._events.door.enter():
            await stream_events(self._source, self._events.patience, receive, send)
