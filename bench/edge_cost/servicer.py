"""The null model over gRPC, with the scheduler that it takes: what nobody asks for is not there."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bench.edge_cost.asks import MODELS, WORDS, pace_s_of
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc


class House(scheduler_pb2_grpc.SchedulerServiceServicer, llm_pb2_grpc.LanguageModelServiceServicer):
    """A scheduler that grants at once, and an engine that answers without a model."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pieces = [llm_pb2.GenerateResponse(text=word, tokens=1) for word in WORDS]
        usage = llm_pb2.Usage(prompt_tokens=80, completion_tokens=len(WORDS))
        finish = llm_pb2.Finish(reason=llm_pb2.FINISH_REASON_STOP, usage=usage)
        self._end = llm_pb2.GenerateResponse(finish=finish)
        self._all = llm_pb2.GenerateResponse(text="".join(WORDS), tokens=len(WORDS), finish=finish)

    async def Admit(
        self, request: pb.AdmitRequest, context: Any
    ) -> AsyncIterator[pb.AdmitResponse]:
        """Granted, until the caller is done."""
        granted = pb.AdmitResponse.Granted(
            permit_id="p", address=self._address, model_key=request.model
        )
        yield pb.AdmitResponse(granted=granted)
        await asyncio.Event().wait()

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Any
    ) -> pb.ListModelsResponse:
        """All its names."""
        models = [models_pb2.Model(key=key) for key in MODELS]
        return pb.ListModelsResponse(models=models)

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        """All is well."""
        return pb.GetStatusResponse(status=pb.Status(reconciled=True))

    async def Generate(
        self, request: llm_pb2.GenerateRequest, context: Any
    ) -> AsyncIterator[llm_pb2.GenerateResponse]:
        """The answer."""
        pace_s = pace_s_of(request.model)
        if not pace_s:
            yield self._all
            return
        for piece in self._pieces:
            yield piece
            await asyncio.sleep(pace_s)
        yield self._end
