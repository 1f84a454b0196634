"""A route that paints: a raw ASGI endpoint, from the body to the last event."""

import time
from contextlib import aclosing
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from chassis.errors import Fault, Reason
from chassis.place import Loading, Queued
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from edge.admin_access import check_local
from edge.answering import in_passing
from edge.disconnect import while_connected
from edge.entrance import Entrance, Guest
from edge.errors import bad_field
from edge.pictures import response
from edge.pictures.fetch import Fetch
from edge.pictures.painted import Partials
from edge.pictures.painter import Happening, Painter, Work
from edge.pictures.painting import Parse
from edge.pictures.source import PictureSource
from edge.pictures.upload import read_form
from edge.sse import Note, Patience, Source, stream_events
from edge.whole import WholeBody

_PHASES = {
    pb.GenerateResponse.PHASE_CONDITION: "reading the prompt",
    pb.GenerateResponse.PHASE_DENOISE: "denoise step",
    pb.GenerateResponse.PHASE_DECODE: "decoding the picture",
    pb.GenerateResponse.PHASE_ENCODE: "writing the picture",
}


@dataclass(frozen=True, slots=True)
class PaintEndpoint:
    """The ASGI application of one route."""

    painter: Painter
    entrance: Entrance
    patience: Patience
    fetch: Fetch
    max_body_bytes: int
    parse: Parse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Fault before the first byte."""
        request = Request(scope, receive)
        with self.entrance.enter(request, self.max_body_bytes) as guest:
            work = await self._understood(request, guest)
            if work.painting.stream:
                await stream_events(self._as_sse(work, guest), self.patience, receive, send)
                return
            body = await while_connected(receive, self._as_body(work, guest))
            whole = WholeBody(body, "application/json", self.patience.stall_s)
            await whole(scope, receive, send)

    async def _understood(self, request: Request, guest: Guest) -> Work:
        form = await read_form(request, guest.room)
        work = Work(await in_passing(guest.room.taken, lambda: self.parse(form)))
        await _check_paths(work, request)
        return work

    async def _as_body(self, work: Work, guest: Guest) -> bytes:
        source = PictureSource(self.fetch, guest.room)
        async with aclosing(self.painter.run(work, guest, source)) as events:
            async for _ in events:
                pass
        created_s = int(time.time())
        return await in_passing(
            _size_bytes(work),
            lambda: response.body(work.painting, work.model, work.pictures, created_s),
        )

    async def _as_sse(self, work: Work, guest: Guest) -> Source:
        source = PictureSource(self.fetch, guest.room)
        partials = Partials(work.painting.partial_images)
        async with aclosing(self.painter.run(work, guest, source)) as events:
            async for event in events:
                if note := _note(event, work):
                    yield note
                elif isinstance(event, pb.GenerateResponse):
                    if event.HasField("started"):
                        partials = Partials(work.painting.partial_images)
                    yield await _told(event, work, partials)


async def _told(event: pb.GenerateResponse, work: Work, partials: Partials) -> bytes:
    """The event for one message of the engine; empty when it says nothing for the client."""
    painted, now_s = work.current, int(time.time())
    if event.HasField("preview"):
        index = partials.take(event.preview.step, painted.started.steps)
        if index is None:
            return b""
        return response.partial(work.painting, painted, event.preview.image, index, now_s)
    if event.HasField("finish") and painted.done:
        return await in_passing(
            _size_bytes(work),
            lambda: response.completed(work.painting, work.model, painted, now_s),
        )
    return b""


def _note(event: Happening, work: Work) -> Note | None:
    """Why nothing comes yet."""
    if isinstance(event, Queued):
        return Note(f"queued behind {event.position}")
    if isinstance(event, Loading):
        return Note(f"loading the model, {event.progress:.0%}")
    if not event.HasField("progress"):
        return None
    said = _PHASES.get(event.progress.phase, "painting")
    if event.progress.phase == pb.GenerateResponse.PHASE_DENOISE:
        said += f" {event.progress.done_steps} of {event.progress.total_steps}"
    of = f", picture {len(work.pictures)} of {work.painting.count}"
    return Note(said + (of if work.painting.count > 1 else ""))


def _size_bytes(work: Work) -> int:
    return sum(len(one.image.image.data) for one in work.pictures if one.image is not None)


async def _check_paths(work: Work, request: Request) -> None:
    """A path says what lies where on this machine: those who are on it may ask."""
    loras = work.painting.generate.loras
    at = next((i for i, lora in enumerate(loras) if lora.HasField("path")), None)
    if at is None:
        return
    try:
        await check_local(request)
    except Fault:
        raise bad_field(
            f"loras[{at}].path",
            "LoRAs are named by their path from this machine alone, without a proxy between; "
            "name it by its `lora_id`.",
            Reason.LORA_PATH_REFUSED,
        ) from None
