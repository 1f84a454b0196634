"""The routes that hand jobs in: the ASGI application, from the form to the accepted job."""

from dataclasses import dataclass

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from chassis import log
from chassis.errors import Fault
from cohabit.jobs.v1 import jobs_pb2 as pb
from edge.choice import Choice
from edge.disconnect import while_connected
from edge.entrance import Entrance, Guest
from edge.errors import bad_field, renamed
from edge.jobs.body import MOST_KEY_CHARS
from edge.jobs.calls import JobCalls
from edge.jobs.parsing import Parse
from edge.jobs.reading import job_view
from edge.jobs.submission import Submission
from edge.keys.caller import Caller
from edge.pictures.fetch import Fetch
from edge.pictures.source import PictureSource
from edge.pictures.upload import read_form
from edge.roster import Roster

KEY_HEADER = "idempotency-key"
_REPLAYED = {"idempotent-replayed": "true"}
_ACCEPTED = 202
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Submitting:
    """What the routes that hand jobs in share."""

    calls: JobCalls
    entrance: Entrance
    roster: Roster
    fetch: Fetch
    makers: Choice
    """Of models that make pictures."""
    backdrops: Choice
    """Of models that make backdrops."""
    mattes: Choice
    """Of matting networks."""
    max_body_bytes: int


@dataclass(frozen=True, slots=True)
class SubmitEndpoint:
    """The ASGI application of one route."""

    submitting: Submitting
    parse: Parse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.submitting.entrance.enter(request, self.submitting.max_body_bytes) as guest:
            submission = self.parse(await read_form(request, guest.room))
            key = key_of(request.headers, submission.idempotency_key)
            answer = await while_connected(receive, self._submit(submission, key, guest))
        headers = {"location": f"/v1/jobs/{answer.job.job_id}"}
        headers |= _REPLAYED if answer.existing else {}
        body = _encode(job_view(answer.job))
        told = Response(body, _ACCEPTED, headers, media_type="application/json")
        await told(scope, receive, send)

    async def _submit(self, submission: Submission, key: str, guest: Guest) -> pb.SubmitJobResponse:
        await self._choose(submission, guest.caller)
        pictures = PictureSource(self.submitting.fetch, guest.room)
        for one in submission.pictures:
            one.media.CopyFrom(await pictures.media(one.source.value, one.source.param))
        request = pb.SubmitJobRequest(
            owner=guest.caller.name,
            idempotency_key=key,
            spec=submission.spec,
            keep_s=submission.keep_s,
            request_id=log.request_id.get(),
        )
        try:
            return await self.submitting.calls.submit(request)
        except Fault as fault:
            raise renamed(fault, submission.client_name) from None

    async def _choose(self, submission: Submission, caller: Caller) -> None:
        for picture in submission.makers:
            picture.model = await self._chosen(self.submitting.makers, picture.model, caller)
        for picture in submission.backdrops:
            picture.model = await self._chosen(
                self.submitting.backdrops, picture.model, caller, "background_model"
            )
        for cutout in submission.cutouts:
            cutout.model = await self._chosen(
                self.submitting.mattes, cutout.model, caller, submission.matte_param
            )

    async def _chosen(
        self, choice: Choice, named: str, caller: Caller, param: str = "model"
    ) -> str:
        """The model of one step. Raises Fault when it is not for this caller."""
        name = await choice.of(named, caller, param)
        await self.submitting.roster.behind(name, caller)
        return name


def key_of(headers: Headers, in_body: str) -> str:
    """The idempotency key of a request; empty for none. Raises Fault."""
    given = headers.get(KEY_HEADER)
    if given is None:
        return in_body
    key = given.strip()
    if not 0 < len(key) <= MOST_KEY_CHARS or not key.isprintable() or not key.isascii():
        rule = f"must be 1 to {MOST_KEY_CHARS} printable characters of ASCII"
        raise bad_field(KEY_HEADER, f"The header {KEY_HEADER} {rule}.")
    if in_body and in_body != key:
        message = f"`idempotency_key` and the header {KEY_HEADER} differ; send one of them."
        raise bad_field("idempotency_key", message)
    return key
