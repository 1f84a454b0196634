"""cohabit.models.v1.ModelService of this service: hosting's, with swaps."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from cohabit.models.v1 import models_pb2 as pb
from hosting.host import ModelHost
from hosting.servicer import ModelServicer
from services.llm.swapping import Swapping

Context = grpc.aio.ServicerContext[Any, Any]


class LanguageModels(ModelServicer):
    """wire ↔ domain, nothing else."""

    def __init__(self, host: ModelHost, swapping: Swapping) -> None:
        super().__init__(host)
        self._swapping = swapping

    async def SwapModel(
        self, request: pb.SwapModelRequest, context: Context
    ) -> AsyncIterator[pb.SwapModelResponse]:
        steps = self._swapping.begin(request)
        try:
            while (step := await steps.next()) is not None:
                yield step
        finally:
            steps.given_up.set()
