"""MatteService of the model service, for people who call it directly.

It offers what its engines offer, for all its models, and obtains the permit itself; what needs no
model runs here.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from chassis.errors import Fault, Reason, not_implemented
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.matte.v1 import matte_pb2_grpc as rpc
from hosting.host import ModelHost
from imaging.decode import probe
from imaging.values import Bounds, Encoding
from services.matte.catalog import NetworkFile
from services.matte.clients import Scheduler
from services.matte.host_work import HostWork
from services.matte.wire import (
    composed_message,
    composition_of,
    estimated_message,
    estimation_of,
    removal_of,
)

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Defaults:
    """For requests that leave it open."""

    encoding: Encoding
    model: str
    """Empty: none."""


class MatteServicer(rpc.MatteServiceServicer):
    """Admits, then relays; or works itself."""

    def __init__(
        self,
        host: ModelHost,
        files: Mapping[str, NetworkFile],
        scheduler: Scheduler,
        work: HostWork,
        defaults: Defaults,
    ) -> None:
        self._host, self._files, self._scheduler, self._work = host, files, scheduler, work
        self._encoding, self._default_model = defaults.encoding, defaults.model

    async def RemoveBackground(
        self, request: pb.RemoveBackgroundRequest, context: Context
    ) -> pb.RemoveBackgroundResponse:
        request.model = self._model(request.model or self._default_model)
        removal_of(request, self._encoding)  # refused before anything is loaded for nothing
        peak_mib = await self._peak_mib(request.model, request.image.data)
        return await self._scheduler.remove(request, peak_mib)

    async def EstimateForeground(
        self, request: pb.EstimateForegroundRequest, context: Context
    ) -> pb.EstimateForegroundResponse:
        asked = estimation_of(request, self._encoding)
        if request.model:
            request.model = self._model(request.model)
            peak_mib = await self._peak_mib(request.model, request.image.data)
            return await self._scheduler.estimate(request, peak_mib)
        return estimated_message(*await self._work.estimate(asked))

    async def Composite(
        self, request: pb.CompositeRequest, context: Context
    ) -> pb.CompositeResponse:
        asked = composition_of(request, self._encoding)
        return composed_message(*await self._work.compose(asked))

    async def MatteVideo(
        self, request_iterator: AsyncIterator[pb.MatteVideoRequest], context: Context
    ) -> AsyncIterator[pb.MatteVideoResponse]:
        raise not_implemented("Matting of videos")
        yield

    async def _peak_mib(self, model: str, image: bytes) -> int:
        """What to ask for: by the picture's header. Raises Fault INVALID_IMAGE, IMAGE_TOO_LARGE."""
        spec = self._host.get(model).spec
        bounds = Bounds(max_px=self._files[model].max_px)
        found = await asyncio.to_thread(probe, image, bounds, "image")
        if not spec.peak_transient_mib:
            return 0
        return self._files[model].peak_mib(found.width_px * found.height_px)

    def _model(self, asked: str) -> str:
        """Raises Fault MODEL_NOT_FOUND, INVALID_REQUEST."""
        if not asked:
            raise Fault(
                Reason.INVALID_REQUEST,
                "`model` is missing, and no default_model is configured; name a matting model.",
                metadata={"param": "model"},
            )
        return self._host.get(asked).spec.key
