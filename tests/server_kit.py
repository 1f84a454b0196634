"""What tests of the server bootstrap share: a toy service on a real wire, and its client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chassis import log
from chassis.channel import open_channel
from chassis.errors import Fault, Reason
from chassis.server import Server, service_name
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2 as pb
from cohabit.models.v1 import models_pb2_grpc as rpc

NAME = service_name(pb, "EngineService")


@dataclass
class Toy(rpc.EngineServiceServicer):
    """RevokePermit does what the permit's name says; WatchEngine streams until let go."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0
    sent: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    request_ids: list[str] = field(default_factory=list)

    async def RevokePermit(
        self, request: pb.RevokePermitRequest, context: Any
    ) -> pb.RevokePermitResponse:
        self.request_ids.append(log.request_id.get())
        self.begun += 1
        _misbehave(request.permit_id)
        if request.permit_id == "wait":
            await self.go.wait()
        return pb.RevokePermitResponse(running=True)

    async def DrainEngine(
        self, request: pb.DrainEngineRequest, context: Any
    ) -> pb.DrainEngineResponse:
        raise NotImplementedError

    async def WatchEngine(
        self, request: pb.WatchEngineRequest, context: Any
    ) -> AsyncIterator[pb.WatchEngineResponse]:
        self.begun += 1
        try:
            yield pb.WatchEngineResponse(load_progress=0.5)
            asked = dict(context.invocation_metadata()).get("do", "")
            _misbehave(asked)
            while asked == "flood":
                self.sent += 1
                yield pb.WatchEngineResponse(failed=common_pb2.Failure(message="x" * 100_000))
            await self.go.wait()
            yield pb.WatchEngineResponse(load_progress=1.0)
        finally:
            self.ended.set()


def _misbehave(how: str) -> None:
    if how == "fault":
        raise Fault(Reason.MODEL_BUSY, "Busy; wait.", retry_after_s=1.234, metadata={"place": "3"})
    if how == "long":
        raise Fault(Reason.INVALID_REQUEST, "No '" + "ü" * 100_000 + "'.")
    if how == "bug":
        raise ZeroDivisionError("secret")


@dataclass
class Fixture:
    server: Server
    toy: Toy
    target: str
    channel: grpc.aio.Channel
    stub: "rpc.EngineServiceAsyncStub"

    async def health(self) -> int:
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=NAME))
        return int(answer.status)


@asynccontextmanager
async def serving(listen: str, drain_s: float = 0.2) -> AsyncIterator[Fixture]:
    server, toy = Server([NAME], drain_s=drain_s), Toy()
    rpc.add_EngineServiceServicer_to_server(toy, server.grpc)
    target = await server.start(listen)
    async with open_channel(target) as channel:
        yield Fixture(server, toy, target, channel, rpc.EngineServiceStub(channel))
    await server.stop()


def revoke(name: str) -> pb.RevokePermitRequest:
    return pb.RevokePermitRequest(permit_id=name)
