"""A model service and an engine that are not there, on a socket: what a scheduler wants to hear.

The callers of the bench say themselves when their work begins and ends, and this tells the
scheduler so, as a model service would. Whether an engine can keep up is not asked here.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from bench.scheduler.through_shell import INSTANCE, resident
from chassis.server import service_name
from cohabit.models.v1 import models_pb2 as pb

_HEARTBEAT_S = 5.0

Context = grpc.aio.ServicerContext[Any, Any]


class StandIn:
    """Reports the models of the script as READY, and what callers say."""

    def __init__(self, address: str, places: int) -> None:
        self._models = resident(address, places)
        self._moves: deque[pb.PermitChange] = deque()
        self._more = asyncio.Event()
        self.asked = 0
        """How often the scheduler asked the engine about a permit."""

    def moved(self, permit_id: str, model: str, *, started: bool) -> None:
        """Work under a permit begins or ends."""
        phase = pb.PermitChange.PHASE_STARTED if started else pb.PermitChange.PHASE_ENDED
        self._moves.append(
            pb.PermitChange(permit_id=permit_id, model_key=model, instance_id=INSTANCE, phase=phase)
        )
        self._more.set()

    async def watch_models(
        self, request: pb.WatchModelsRequest, context: Context
    ) -> AsyncIterator[pb.WatchModelsResponse]:
        """Everything, then what moved."""
        del request, context
        snapshot = pb.WatchModelsResponse.Snapshot(models=self._models)
        yield pb.WatchModelsResponse(snapshot=snapshot)
        while True:
            while self._moves:
                yield pb.WatchModelsResponse(permit=self._moves.popleft())
            self._more.clear()
            try:
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._more.wait()
            except TimeoutError:
                yield pb.WatchModelsResponse(heartbeat=pb.WatchModelsResponse.Heartbeat())

    async def revoke_permit(
        self, request: pb.RevokePermitRequest, context: Context
    ) -> pb.RevokePermitResponse:
        """Nothing runs here."""
        del request, context
        self.asked += 1
        return pb.RevokePermitResponse(running=False)

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """The two methods that a scheduler calls while every model is resident."""
        watch = grpc.unary_stream_rpc_method_handler(
            self.watch_models,
            request_deserializer=pb.WatchModelsRequest.FromString,
            response_serializer=pb.WatchModelsResponse.SerializeToString,
        )
        revoke = grpc.unary_unary_rpc_method_handler(
            self.revoke_permit,
            request_deserializer=pb.RevokePermitRequest.FromString,
            response_serializer=pb.RevokePermitResponse.SerializeToString,
        )
        models, engine = service_name(pb, "ModelService"), service_name(pb, "EngineService")
        return (
            grpc.method_handlers_generic_handler(models, {"WatchModels": watch}),
            grpc.method_handlers_generic_handler(engine, {"RevokePermit": revoke}),
        )


@asynccontextmanager
async def standing_in(address: str, places: int) -> AsyncIterator[StandIn]:
    """Listen at `address` until the end of the block."""
    stand_in = StandIn(address, places)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(stand_in.handlers())
    server.add_insecure_port(address)
    await server.start()
    try:
        yield stand_in
    finally:
        await server.stop(None)
