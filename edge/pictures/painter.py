"""Paints: from a request that is understood to the last message about its last picture.

Nothing waits for its turn before it is known that it can be served: the model is one that paints,
its pictures are there, and its size has been planned. Several pictures are as many turns, one
after the other, so that whoever waits is served in between.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chassis.admission import Admission, Turn, engine_crashed
from chassis.errors import Fault, Reason
from chassis.place import Ask, Loading, Queued
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from edge import errors
from edge.entrance import Guest
from edge.pictures.models import PaintingModels, check_looks, edits
from edge.pictures.painted import Painted
from edge.pictures.painting import Painting
from edge.pictures.service import DiffusionService, Peak
from edge.pictures.source import WIDEST, PictureSource
from imaging.decode import probe

if TYPE_CHECKING:
    import grpc

    from chassis.admission import Start
    from cohabit.diffusion.v1.diffusion_pb2_grpc import DiffusionServiceAsyncStub as Engine

    GenerateCall = grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateResponse]

Happening = Queued | Loading | pb.GenerateResponse


@dataclass(slots=True)
class Work:
    """A painting on its way."""

    painting: Painting
    model: str = ""
    """The key that serves, known once the first picture is granted."""
    pictures: list[Painted] = field(default_factory=list)

    @property
    def current(self) -> Painted:
        """The picture that is being made."""
        return self.pictures[-1]


@dataclass(frozen=True, slots=True)
class Painter:
    """Runs paintings; shared by all routes."""

    admission: "Admission[Engine]"
    models: PaintingModels
    service: DiffusionService

    async def run(
        self, work: Work, guest: Guest, source: PictureSource
    ) -> AsyncGenerator[Happening, None]:
        """Everything that happens, to the last picture's end. Raises Fault.

        What the engine says is taken into `work` before it is told.
        """
        name = await self.models.named(work.painting.model, guest.caller)
        behind = await self.models.behind(name, guest.caller)
        painting = work.painting = work.painting.for_model(edits=edits(behind))
        if looked_at := painting.looks_at():
            check_looks(behind, looked_at)
        try:
            await _bring(painting, source)
            painting = work.painting = painting.brought()
            peak = await self.service.peak(behind, await _plan(painting))
            ask = _ask(name, painting, guest, peak)
            for index in range(painting.count):
                async with aclosing(self._turn(work, ask, index)) as events:
                    async for event in events:
                        yield event
        except Fault as fault:
            if fault.reason is Reason.MODEL_NOT_FOUND:
                raise errors.model_not_found(name) from None
            raise errors.renamed(fault, painting.client_name) from None

    async def _turn(self, work: Work, ask: Ask, index: int) -> AsyncGenerator[Happening, None]:
        """One picture, from its place in the queue to its end."""
        work.pictures.append(Painted())
        start = _painting(_numbered(work.painting.generate, index), work)
        async with aclosing(self.admission.run(ask, start)) as events:
            async for event in events:
                if isinstance(event, pb.GenerateResponse):
                    work.current.take(event)
                yield event
        if not work.current.done:
            raise engine_crashed()


async def _bring(painting: Painting, source: PictureSource) -> None:
    """Put the given pictures into the request."""
    request = painting.generate
    for one in painting.given:
        media = await source.media(one.value, one.param)
        match one.role:
            case "init_image":
                request.init_image.CopyFrom(media)
            case "mask":
                request.mask.CopyFrom(media)
            case "reference_images":
                request.reference_images.append(media)


async def _plan(painting: Painting) -> pb.PlanGenerationRequest:
    request = painting.generate
    width, height = request.width_px, request.height_px
    if not width and request.HasField("init_image"):
        width, height = await _size_of_start(painting)
    return pb.PlanGenerationRequest(
        width_px=width,
        height_px=height,
        batch=1,
        vae_tiling=request.vae_tiling,
        input_images=sum(one.role != "mask" for one in painting.given),
    )


async def _size_of_start(painting: Painting) -> tuple[int, int]:
    start = painting.generate.init_image.data
    found = await asyncio.to_thread(probe, start, WIDEST, "init_image")
    return found.width_px, found.height_px


def _ask(name: str, painting: Painting, guest: Guest, peak: Peak) -> Ask:
    tier = common_pb2.TIER_BACKGROUND if painting.background_tier else guest.tier
    return Ask(
        name,
        tier,
        key=guest.key,
        preferred_mib=peak.preferred_mib,
        minimum_mib=peak.minimum_mib,
    )


def _numbered(first: pb.GenerateRequest, index: int) -> pb.GenerateRequest:
    """The request for picture `index`, whose seed follows from the first's."""
    if index and first.HasField("seed"):
        first.seed += 1
    return first


def _painting(request: pb.GenerateRequest, work: Work) -> "Start[Engine, pb.GenerateResponse]":
    def start(engine: "Engine", turn: Turn) -> "GenerateCall":
        work.model = work.model or turn.model_key
        work.current.queue_wait_ms = turn.queue_wait_ms
        turn.lend_to(request)
        return engine.Generate(request, timeout=turn.timeout_s, metadata=turn.metadata)

    return start
