"""POST /v1/images/background-removals: the ASGI application, from the form to the cutout."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from chassis.admission import Admission, Turn
from chassis.errors import Fault, Reason
from chassis.place import Ask
from cohabit.matte.v1 import matte_pb2 as pb
from edge.answering import in_passing
from edge.choice import Choice
from edge.cutouts.answer import Served, Written, written
from edge.cutouts.request import Removal, filled, understand
from edge.cutouts.service import MatteService
from edge.cutouts.sources import Source
from edge.disconnect import while_connected
from edge.entrance import Entrance, Guest
from edge.errors import model_not_found, renamed
from edge.pictures.fetch import Fetch
from edge.pictures.source import PictureSource
from edge.pictures.upload import read_form
from edge.roster import Roster
from edge.whole import WholeBody

if TYPE_CHECKING:
    from grpc.aio import UnaryUnaryCall

    from cohabit.matte.v1.matte_pb2_grpc import MatteServiceAsyncStub as Engine

    RemoveCall = UnaryUnaryCall[pb.RemoveBackgroundRequest, pb.RemoveBackgroundResponse]

PATH = "/v1/images/background-removals"


@dataclass(frozen=True, slots=True)
class RemovalEndpoint:
    """The ASGI application of the route."""

    admission: "Admission[Engine]"
    entrance: Entrance
    roster: Roster
    choice: Choice
    service: MatteService
    fetch: Fetch
    max_body_bytes: int
    stall_s: float
    """A client that takes nothing of its answer for this long is left."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.entrance.enter(request, self.max_body_bytes) as guest:
            removal = understand(await read_form(request, guest.room))
            body = await while_connected(receive, self._answer(removal, guest))
            await WholeBody(body.data, body.mime_type, self.stall_s)(scope, receive, send)

    async def _answer(self, removal: Removal, guest: Guest) -> Written:
        model = await self.choice.of(removal.model, guest.caller)
        behind = await self.roster.behind(model, guest.caller)
        self.choice.check(behind)
        asked = await self._with_pictures(removal, guest)
        served = Served(model, int(time.time()), 0)

        def start(engine: "Engine", turn: Turn) -> "RemoveCall":
            nonlocal served
            served = Served(turn.model_key, served.created_s, turn.queue_wait_ms)
            turn.lend_to(asked)
            return engine.RemoveBackground(asked, timeout=turn.timeout_s, metadata=turn.metadata)

        try:
            peak_mib = await self.service.peak_mib(behind, asked)
            ask = Ask(model, guest.tier, key=guest.key, preferred_mib=peak_mib)
            answer = await self.admission.answer(ask, start)
        except Fault as fault:
            raise _for_caller(fault, removal, model) from None
        return await in_passing(answer.ByteSize(), lambda: written(answer, removal, served))

    async def _with_pictures(self, removal: Removal, guest: Guest) -> pb.RemoveBackgroundRequest:
        pictures = PictureSource(self.fetch, guest.room)
        image = await pictures.media(removal.image.value, removal.image.param)
        if not isinstance(removal.backdrop, Source):
            return filled(removal, image, None)
        behind = await pictures.media(removal.backdrop.value, removal.backdrop.param)
        return filled(removal, image, behind)


def _for_caller(fault: Fault, removal: Removal, model: str) -> Fault:
    """The fault in the words of the request."""
    if fault.reason is Reason.MODEL_NOT_FOUND:
        return model_not_found(model)
    return renamed(fault, removal.client_name)
