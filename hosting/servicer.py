"""cohabit.models.v1.ModelService over a ModelHost: wire ↔ domain, nothing else."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc

from chassis.errors import not_implemented
from cohabit.models.v1 import models_pb2 as pb
from cohabit.models.v1 import models_pb2_grpc as rpc
from hosting.broadcast import Fallen
from hosting.host import ModelHost

_HEARTBEAT_S = 5.0

Context = grpc.aio.ServicerContext[Any, Any]


class ModelServicer(rpc.ModelServiceServicer):
    """The models of one service."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        await self._host.refresh()
        return pb.ListModelsResponse(
            models=self._host.messages(), configuration=self._host.configuration
        )

    async def LoadModel(
        self, request: pb.LoadModelRequest, context: Context
    ) -> AsyncIterator[pb.LoadModelResponse]:
        async with aclosing(self._host.load(request.key, request.lease_id)) as load:
            async for instance in load:
                yield pb.LoadModelResponse(instance=instance)

    async def UnloadModel(
        self, request: pb.UnloadModelRequest, context: Context
    ) -> pb.UnloadModelResponse:
        model = await self._host.unload(
            request.key, request.drain_ms, force=request.force, instance_id=request.instance_id
        )
        return pb.UnloadModelResponse(model=model)

    async def OverrideModel(
        self, request: pb.OverrideModelRequest, context: Context
    ) -> pb.OverrideModelResponse:
        model = await self._host.override(request.key, dict(request.overrides))
        return pb.OverrideModelResponse(model=model)

    async def SwapModel(
        self, request: pb.SwapModelRequest, context: Context
    ) -> AsyncIterator[pb.SwapModelResponse]:
        raise not_implemented("Swapping the files of this service's models")
        yield

    async def WatchModels(
        self, request: pb.WatchModelsRequest, context: Context
    ) -> AsyncIterator[pb.WatchModelsResponse]:
        heartbeat = pb.WatchModelsResponse(heartbeat=pb.WatchModelsResponse.Heartbeat())
        await self._host.refresh()
        with self._host.events.subscribe() as watcher:
            snapshot = pb.WatchModelsResponse.Snapshot(
                models=self._host.messages(), configuration=self._host.configuration
            )
            yield pb.WatchModelsResponse(snapshot=snapshot)
            while True:
                try:
                    event = await watcher.next(_HEARTBEAT_S)
                except Fallen:
                    return  # it comes back for a fresh snapshot
                yield event or heartbeat
