"""Calls of the job service: to the scheduler, and through it to engines, in terms of steps.

Every call that needs a device is admitted by itself, at background tier; what needs none goes to
the model service. A call that is cancelled gives its place or its permit back.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc

from chassis.admission import Admission, Start, Turn, engine_crashed
from chassis.channel import call_metadata, open_channel
from chassis.channels import Channels
from chassis.errors import Fault, Reason
from chassis.place import Ask, Loading, Queued, Waits
from chassis.status import fault_of
from cohabit.common.v1 import common_pb2
from cohabit.diffusion.v1 import diffusion_pb2, diffusion_pb2_grpc
from cohabit.matte.v1 import matte_pb2, matte_pb2_grpc
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from imaging.decode import probe
from services.jobs.checks import BOUNDS

if TYPE_CHECKING:
    Diffusion = diffusion_pb2_grpc.DiffusionServiceAsyncStub
    Matte = matte_pb2_grpc.MatteServiceAsyncStub
    SchedulerStub = scheduler_pb2_grpc.SchedulerServiceAsyncStub
    GenerateCall = grpc.aio.UnaryStreamCall[
        diffusion_pb2.GenerateRequest, diffusion_pb2.GenerateResponse
    ]
    MatteCall = grpc.aio.UnaryUnaryCall[
        matte_pb2.RemoveBackgroundRequest, matte_pb2.RemoveBackgroundResponse
    ]

_ANSWER_S = 10.0
_COMPOSITE_S = 120.0
_IDLE_ENGINES = 8

S = TypeVar("S")
Q = TypeVar("Q")
A = TypeVar("A")
R = TypeVar("R", diffusion_pb2.GenerateResponse, matte_pb2.RemoveBackgroundResponse)

Report = Callable[[float, bool, str], None]
"""Told how far a step is (0 to 1), whether it runs or waits, and which model serves it."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """gRPC targets."""

    scheduler: str
    diffusion: str
    matte: str


class Calls:
    """Everything that steps ask of others. Raises Fault."""

    def __init__(self, addresses: Addresses, call_s: float) -> None:
        waits = Waits(answer_s=_ANSWER_S, resume_s=_ANSWER_S, request_s=call_s)
        self._channels = [
            open_channel(address)
            for address in (addresses.scheduler, addresses.diffusion, addresses.matte)
        ]
        to_scheduler, to_diffusion, to_matte = self._channels
        self._scheduler: SchedulerStub = scheduler_pb2_grpc.SchedulerServiceStub(to_scheduler)
        self._diffusion: Diffusion = diffusion_pb2_grpc.DiffusionServiceStub(to_diffusion)
        self._matte: Matte = matte_pb2_grpc.MatteServiceStub(to_matte)
        self._painters = Channels(_IDLE_ENGINES, diffusion_pb2_grpc.DiffusionServiceStub)
        self._cutters = Channels(_IDLE_ENGINES, matte_pb2_grpc.MatteServiceStub)
        self._paint: Admission[Diffusion] = Admission(self._scheduler, self._painters, waits)
        self._cut: Admission[Matte] = Admission(self._scheduler, self._cutters, waits)

    async def close(self) -> None:
        """Close the channels."""
        await self._painters.close()
        await self._cutters.close()
        for channel in self._channels:
            await channel.close()

    async def status(self) -> scheduler_pb2.Status:
        """The scheduler, and the models it knows."""
        request = scheduler_pb2.GetStatusRequest()
        return (await _answer(self._scheduler.GetStatus, request, "scheduler", _ANSWER_S)).status

    async def generate(
        self, request: diffusion_pb2.GenerateRequest, owner: str, report: Report
    ) -> diffusion_pb2.GenerateResponse.Image:
        """One picture, from the model `request.model` names by its key."""
        plan = await self._plan(request)

        def start(engine: "Diffusion", turn: Turn) -> "GenerateCall":
            report(0.0, True, turn.model_key)
            turn.lend_to(request)
            return engine.Generate(request, timeout=turn.timeout_s, metadata=turn.metadata)

        ask = Ask(
            request.model,
            common_pb2.TIER_BACKGROUND,
            key=owner,
            preferred_mib=plan.preferred_transient_mib,
            minimum_mib=plan.minimum_transient_mib,
        )
        image: diffusion_pb2.GenerateResponse.Image | None = None
        async with aclosing(self._paint.run(ask, start)) as events:
            async for event in events:
                match event:
                    case Queued() | Loading():
                        report(0.0, False, "")
                    case diffusion_pb2.GenerateResponse():
                        report(_painted(event), True, "")
                        image = event.image if event.HasField("image") else image
        if image is None:
            raise engine_crashed()
        return image

    async def remove_background(
        self, request: matte_pb2.RemoveBackgroundRequest, owner: str, report: Report
    ) -> matte_pb2.RemoveBackgroundResponse:
        """The cutout and whatever else is asked for."""

        def start(engine: "Matte", turn: Turn) -> "MatteCall":
            report(0.0, True, turn.model_key)
            turn.lend_to(request)
            return engine.RemoveBackground(request, timeout=turn.timeout_s, metadata=turn.metadata)

        ask = Ask(
            request.model,
            common_pb2.TIER_BACKGROUND,
            key=owner,
            preferred_mib=await self._removal_mib(request),
        )
        return await _last(self._cut, ask, start, report)

    async def composite(self, request: matte_pb2.CompositeRequest) -> matte_pb2.CompositeResponse:
        """The cutout on its backdrop; needs no permit."""
        return await _answer(self._matte.Composite, request, "matte", _COMPOSITE_S)

    async def _plan(
        self, request: diffusion_pb2.GenerateRequest
    ) -> diffusion_pb2.PlanGenerationResponse:
        asked = diffusion_pb2.PlanGenerationRequest(
            model=request.model,
            width_px=request.width_px,
            height_px=request.height_px,
            batch=1,
            input_images=int(request.HasField("init_image")),
        )
        return await _answer(self._diffusion.PlanGeneration, asked, "diffusion", _ANSWER_S)

    async def _removal_mib(self, request: matte_pb2.RemoveBackgroundRequest) -> int:
        """What the larger of its pictures adds."""
        most_mib = 0
        for media in (request.image, request.backdrop.image):
            if media.data:
                size = await asyncio.to_thread(probe, media.data, BOUNDS, "image")
                asked = matte_pb2.PlanRemovalRequest(
                    model=request.model, width_px=size.width_px, height_px=size.height_px
                )
                plan = await _answer(self._matte.PlanRemoval, asked, "matte", _ANSWER_S)
                most_mib = max(most_mib, plan.transient_mib)
        return most_mib


async def _last(admission: Admission[S], ask: Ask, start: Start[S, R], report: Report) -> R:
    last: R | None = None
    async with aclosing(admission.run(ask, start)) as events:
        async for event in events:
            if isinstance(event, Queued | Loading):
                report(0.0, False, "")
            else:
                last = event
    if last is None:
        raise engine_crashed()
    return last


async def _answer(
    call: "Callable[..., grpc.aio.UnaryUnaryCall[Q, A]]", request: Q, peer: str, within_s: float
) -> A:
    try:
        return await call(request, timeout=within_s, metadata=call_metadata())
    except grpc.aio.AioRpcError as error:
        fault = fault_of(error, peer)
        if fault.reason is Reason.DEADLINE_EXCEEDED:
            message = f"The {peer} service did not answer within {within_s:g} s; try again shortly."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0) from None
        raise fault from None


def _painted(event: diffusion_pb2.GenerateResponse) -> float:
    """How far the picture is: its denoise steps take nearly all of the time."""
    progress = event.progress
    if progress.phase == diffusion_pb2.GenerateResponse.PHASE_DENOISE and progress.total_steps:
        return 0.95 * progress.done_steps / progress.total_steps
    if progress.phase in (
        diffusion_pb2.GenerateResponse.PHASE_DECODE,
        diffusion_pb2.GenerateResponse.PHASE_ENCODE,
    ):
        return 0.95
    return 0.0
