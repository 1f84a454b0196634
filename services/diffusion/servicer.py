"""DiffusionService of the model service, for people who call it directly.

It offers what its engines offer, for all its models, and obtains the permit itself. What a picture
comes to, and which LoRAs there are, it says without an engine.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc

from chassis.errors import Fault, Reason, not_implemented
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.diffusion.v1 import diffusion_pb2_grpc as rpc
from hosting.host import ModelHost
from hosting.house_device import Device
from services.diffusion import inputs, limits, loras
from services.diffusion.clients import Scheduler
from services.diffusion.engine import EngineSpec, spec_of
from services.diffusion.planning import Planned, Wish, plan
from services.diffusion.wire import asked_of, tiling_of
from services.diffusion.wire_answer import loras_response

_LOOK_AGAIN_S = 2.0
"""A file that is put right is seen after this."""

Context = grpc.aio.ServicerContext[Any, Any]


class DiffusionServicer(rpc.DiffusionServiceServicer):
    """Plans, admits, relays."""

    def __init__(
        self,
        host: ModelHost,
        scheduler: Scheduler,
        lora_dir: Path | None,
        device: Callable[[], Device],
    ) -> None:
        self._host = host
        self._scheduler = scheduler
        self._lora_dir = lora_dir
        self._device = device

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        spec = await self._spec(request.model)
        planned = await asyncio.to_thread(self._planned, request, spec)
        async with aclosing(self._scheduler.generate(request, planned)) as answer:
            async for message in answer:
                yield message

    async def PlanGeneration(
        self, request: pb.PlanGenerationRequest, context: Context
    ) -> pb.PlanGenerationResponse:
        spec = await self._spec(request.model)
        wish = Wish(
            request.width_px,
            request.height_px,
            max(1, request.batch),
            tiling_of(request.vae_tiling),
            request.input_images,
        )
        planned = plan(spec, wish, self._lendable_mib(request.model))
        return pb.PlanGenerationResponse(
            width_px=planned.size.width_px,
            height_px=planned.size.height_px,
            size_rounded=planned.size.rounded,
            preferred_transient_mib=planned.preferred_mib,
            minimum_transient_mib=planned.minimum_mib,
        )

    async def EncodeIdentity(
        self, request: pb.EncodeIdentityRequest, context: Context
    ) -> pb.EncodeIdentityResponse:
        raise not_implemented("Conditioning on a person's identity")

    async def ListLoras(
        self, request: pb.ListLorasRequest, context: Context
    ) -> pb.ListLorasResponse:
        base = (await self._spec(request.model)).family if request.model else ""
        if self._lora_dir is None:
            return pb.ListLorasResponse()
        return loras_response(await asyncio.to_thread(loras.listed, self._lora_dir, base))

    async def _spec(self, key: str) -> EngineSpec:
        """Of the model as its files are now. Raises Fault MODEL_NOT_FOUND, MODEL_FAILED."""
        hosted = await self._host.refreshed(key)
        if hosted.spec.problem:
            raise Fault(Reason.MODEL_FAILED, hosted.spec.problem, retry_after_s=_LOOK_AGAIN_S)
        return spec_of(hosted.spec.engine)

    def _planned(self, request: pb.GenerateRequest, spec: EngineSpec) -> Planned:
        """Refuses before it queues what its engine would refuse. Blocks."""
        asked = asked_of(request)
        limits.check(asked, spec)
        wish = Wish(
            asked.width_px,
            asked.height_px,
            asked.batch,
            asked.tiling,
            asked.input_images,
            inputs.init_size(asked),
        )
        return plan(spec, wish, self._lendable_mib(request.model))

    def _lendable_mib(self, key: str) -> int:
        """What a request could be lent beside the model, on a device that is empty otherwise; 0:
        the device is not known yet.
        """
        lendable_mib = self._device().lendable_mib
        return max(1, lendable_mib - self._host.get(key).resident_mib) if lendable_mib else 0
