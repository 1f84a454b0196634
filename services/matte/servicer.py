"""MatteService of the model service, for people who call it directly.

It offers what its engines offer, for all its models, and obtains the permit itself; what needs no
model runs here.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from chassis.errors import Fault, Reason, not_implemented
from cohabit.matte.v1 import matte_pb2 as pb
from cohabit.matte.v1 import matte_pb2_grpc as rpc
from hosting.host import ModelHost
from imaging.decode import probe
from imaging.refusals import check_size
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
    model: Callable[[], str]
    """Answers the one of now; empty: none."""


class MatteServicer(rpc.MatteServiceServicer):
    """Admits, then relays; or works itself."""

    def __init__(
        self,
        host: ModelHost,
        scheduler: Scheduler,
        work: HostWork,
        defaults: Defaults,
    ) -> None:
        self._host, self._scheduler, self._work = host, scheduler, work
        self._encoding, self._default_model = defaults.encoding, defaults.model

    async def RemoveBackground(
        self, request: pb.RemoveBackgroundRequest, context: Context
    ) -> pb.RemoveBackgroundResponse:
        request.model = self._model(request.model or self._default_model())
        removal_of(request, self._encoding)  # refused before anything is loaded for nothing
        pictures = {"image": request.image.data}
        if request.backdrop.HasField("image"):
            pictures["backdrop.image"] = request.backdrop.image.data
        peak_mib = await self._peak_mib_of(request.model, pictures)
        return await self._scheduler.remove(request, peak_mib)

    async def PlanRemoval(
        self, request: pb.PlanRemovalRequest, context: Context
    ) -> pb.PlanRemovalResponse:
        model = self._model(request.model or self._default_model())
        peak_mib = self._peak_mib(model, request.width_px, request.height_px)
        return pb.PlanRemovalResponse(transient_mib=peak_mib)

    async def EstimateForeground(
        self, request: pb.EstimateForegroundRequest, context: Context
    ) -> pb.EstimateForegroundResponse:
        asked = estimation_of(request, self._encoding)
        if request.model:
            request.model = self._model(request.model)
            peak_mib = await self._peak_mib_of(request.model, {"image": request.image.data})
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

    async def _peak_mib_of(self, model: str, pictures: Mapping[str, bytes]) -> int:
        """As `_peak_mib`, of the larger of the pictures, whose fields they are given by."""
        bounds = self._bounds(model)
        found = [
            await asyncio.to_thread(probe, data, bounds, field) for field, data in pictures.items()
        ]
        return max(self._peak_mib(model, one.width_px, one.height_px) for one in found)

    def _peak_mib(self, model: str, width_px: int, height_px: int) -> int:
        """What to ask the scheduler for. Raises Fault INVALID_IMAGE, IMAGE_TOO_LARGE."""
        check_size("image", width_px, height_px, self._bounds(model))
        if not self._host.get(model).spec.peak_transient_mib:
            return 0
        return self._file(model).peak_mib(width_px * height_px)

    def _bounds(self, model: str) -> Bounds:
        return Bounds(max_px=self._file(model).max_px)

    def _file(self, model: str) -> NetworkFile:
        """As what is loaded was described by."""
        source = self._host.get(model).source
        assert isinstance(source, NetworkFile)  # noqa: S101 - this service has no other
        return source

    def _model(self, asked: str) -> str:
        """Raises Fault MODEL_NOT_FOUND, INVALID_REQUEST."""
        if not asked:
            raise Fault(
                Reason.INVALID_REQUEST,
                "`model` is missing, and no default_model is configured; name a matting model.",
                metadata={"param": "model"},
            )
        return self._host.get(asked).spec.key
