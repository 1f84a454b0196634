"""DiffusionService of one engine process: one model, and a permit for every request.

A request has two sides. Its work holds the permit, and is over when the device is free of it; its
reader may be gone long before, or read on long after. Between them stands the outbox.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from chassis import log
from chassis.channel import TAKEN_IN
from chassis.errors import Fault, Reason, not_implemented
from cohabit.diffusion.v1 import diffusion_pb2 as pb
from cohabit.diffusion.v1 import diffusion_pb2_grpc as rpc
from hosting.engine_side import EngineProcess, permit_of
from hosting.traced import took
from services.diffusion import loras
from services.diffusion.generation import Generation
from services.diffusion.loaded import LoadedModel
from services.diffusion.outbox import Outbox, slow_reader
from services.diffusion.wire import asked_of
from services.diffusion.wire_answer import loras_response, response_of

Context = grpc.aio.ServicerContext[Any, Any]

_READ_WITHIN_S = 30.0
"""How long one message may wait for its reader."""


class EngineServicer(rpc.DiffusionServiceServicer):
    """wire ↔ LoadedModel."""

    def __init__(
        self, process: EngineProcess, model: LoadedModel, read_within_s: float = _READ_WITHIN_S
    ) -> None:
        self._process, self._model, self._read_within_s = process, model, read_within_s
        self._working: set[asyncio.Task[None]] = set()

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        outbox = Outbox()
        work = asyncio.create_task(self._work(request, permit_of(context), outbox))
        self._working.add(work)
        work.add_done_callback(self._working.discard)
        taken_in = False
        try:
            async for event in outbox.read():  # raises what the request ends with
                if not taken_in:
                    await context.send_initial_metadata(((TAKEN_IN, "1"),))
                    taken_in = True
                response = response_of(event)
                if response.HasField("finish"):
                    took(response.finish.timings)
                async with asyncio.timeout(self._read_within_s):
                    yield response
        except TimeoutError:
            raise slow_reader() from None
        finally:
            work.cancel()  # it goes when the device is free
            work.add_done_callback(lambda _: self._model.delivering.discard(outbox))

    async def PlanGeneration(
        self, request: pb.PlanGenerationRequest, context: Context
    ) -> pb.PlanGenerationResponse:
        raise not_implemented("Planning by an engine, rather than by the model service,")

    async def EncodeIdentity(
        self, request: pb.EncodeIdentityRequest, context: Context
    ) -> pb.EncodeIdentityResponse:
        raise not_implemented("Extracting an identity")

    async def ListLoras(
        self, request: pb.ListLorasRequest, context: Context
    ) -> pb.ListLorasResponse:
        if request.model:
            self._check_model(request.model)
        spec = self._model.spec
        if spec.lora_dir is None:
            return pb.ListLorasResponse()
        base = spec.family if request.model else ""
        return loras_response(await asyncio.to_thread(loras.listed, Path(spec.lora_dir), base))

    async def _work(self, request: pb.GenerateRequest, permit_id: str, outbox: Outbox) -> None:
        """Everything about a request but its reader. Its outbox is ended whatever happens."""
        arrived_s = time.monotonic()
        try:
            async with self._process.permits.use(permit_id, request.transient_lease_id):
                self._check_model(request.model)
                settings, inputs = await self._model.prepare(asked_of(request))
                outbox.put(settings)
                lent_mib = request.transient_mib
                made = Generation(self._model, settings, inputs, outbox.put, arrived_s, lent_mib)
                await made.paint()
            self._model.delivering.add(outbox)
            await made.deliver()
        except Fault as fault:
            outbox.end(fault)
        except asyncio.CancelledError:
            outbox.end(_cancelled())
            raise
        except Exception:
            log.get().exception("bug")
            outbox.end(
                Fault(Reason.INTERNAL, "Something went wrong in the engine; its log says what.")
            )
        else:
            outbox.end()

    def _check_model(self, asked: str) -> None:
        mine = self._model.key
        if asked != mine:
            raise Fault(
                Reason.MODEL_NOT_FOUND, f"This engine runs '{mine}', not '{asked}'; ask for that."
            )


def _cancelled() -> Fault:
    return Fault(Reason.CANCELLED, "The request was cancelled.")
