"""POST /v1/responses: the ASGI application. What it learns is kept when its work is over."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from chassis.errors import Fault, Reason
from cohabit.llm.v1 import llm_pb2
from edge import json_body, speech
from edge.answering import Answering, Asked, Served, in_passing
from edge.errors import bad_field
from edge.responses.body import ResponsesBody, decoder
from edge.responses.frame import framed
from edge.responses.ids import new_id
from edge.responses.in_flight import InFlight, Run
from edge.responses.objects import ListedItem
from edge.responses.request import Understood, understand
from edge.responses.shelf import Shelf
from edge.responses.speech import detail, ending
from edge.responses.store import Kept, kept
from edge.responses.writer import Writer


@dataclass(frozen=True, slots=True)
class ResponsesEndpoint:
    """The ASGI application of the route."""

    answering: Answering
    shelf: Shelf
    in_flight: InFlight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.answering.entrance.enter(request) as guest:
            raw = await guest.room.read(request)
            body = await in_passing(len(raw), lambda: json_body.decode(decoder, raw))
            last = await self._last(body, guest.owner)
            size_bytes = len(raw) + (last.size_bytes if last else 0)
            before, understood = await in_passing(size_bytes, lambda: _understood(body, last))
            response = framed(body, understood.tools, self.in_flight.new_id(), int(time.time()))
            run = Run(guest.owner, Writer(response, new_id), [*before, *understood.given])
            # From here on, rooms that know chat completions alone may name its fields.
            speech.current.set(ending(lambda fault: run.writer.fail(fault, detail(fault))))
            with self.in_flight.holding(run), self._keeping(run, stream=bool(body.stream)):
                asked = _asked(body, understood, run)
                await self.answering.answer(asked, guest, request, send)

    async def _last(self, body: ResponsesBody, owner: str) -> Kept | None:
        """The response that the request goes on from. Raises Fault when it is not there."""
        name = body.previous_response_id
        if not name:
            return None
        if self.in_flight.find(name, owner) is not None:
            raise _not_complete(name)
        seen = await self.shelf.look(name, owner)
        if seen is None:
            raise _no_previous(name)
        if not seen.over:
            raise _not_complete(name)
        return seen.kept

    @contextmanager
    def _keeping(self, run: Run, *, stream: bool) -> Iterator[None]:
        try:
            yield
        finally:
            writer = run.writer
            done = writer.response.status in ("completed", "incomplete")
            writer.leave()
            # An answer that is told whole and never was: nobody knows its id.
            if writer.response.store and (writer.told if stream else done):
                entry = kept(run.owner, writer.body(), run.given)
                self.shelf.keep(writer.response.id, entry)


def _understood(body: ResponsesBody, last: Kept | None) -> tuple[list[ListedItem], Understood]:
    before = last.conversation() if last is not None else []
    return before, understand(body, before, new_id)


def _asked(body: ResponsesBody, understood: Understood, run: Run) -> Asked:
    return Asked(
        model=body.model,
        generate=understood.generate,
        stream=bool(body.stream),
        events=lambda served: _Events(run.writer, served),
        whole=lambda served: _Body(run.writer, served),
        through=run.until_stopped,
        prompt="input",
    )


class _Events:
    """`edge.answering.EventWriter` of a response."""

    def __init__(self, writer: Writer, served: Served) -> None:
        self._writer = writer
        writer.begin(served)

    def feed(self, message: llm_pb2.GenerateResponse) -> bytes:
        """The events for one message."""
        return self._writer.feed(message)

    def end(self) -> bytes:
        """The last events."""
        return self._writer.end(int(time.time()))


class _Body:
    """`edge.answering.BodyWriter` of a response."""

    def __init__(self, writer: Writer, served: Served) -> None:
        self._writer = writer
        writer.begin(served)

    def feed(self, message: llm_pb2.GenerateResponse) -> None:
        """Take one message in."""
        self._writer.feed(message)

    def body(self) -> bytes:
        """The response."""
        self._writer.end(int(time.time()))
        return self._writer.body()


def _not_complete(name: str) -> Fault:
    message = f"The previous response `{name}` is not complete yet; wait for its end."
    return bad_field("previous_response_id", message)


def _no_previous(name: str) -> Fault:
    message = (
        f"Previous response with id '{name}' not found: it was never kept, or is kept no longer; "
        "send the conversation itself in `input`."
    )
    metadata = {speech.PARAM: "previous_response_id"}
    return Fault(Reason.PREVIOUS_RESPONSE_NOT_FOUND, message, metadata=metadata)
