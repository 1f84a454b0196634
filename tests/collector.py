"""A collector of traces for tests: OTLP's own TraceService, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as rpc
from opentelemetry.proto.trace.v1 import trace_pb2

DEADLINE_S = 20.0


@dataclass(frozen=True)
class Seen:
    """A span that was told, and which process told it."""

    process: dict[str, Any]
    span: trace_pb2.Span

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def service(self) -> str:
        return str(self.process["service.name"])

    @property
    def trace_id(self) -> str:
        return self.span.trace_id.hex()

    @property
    def said(self) -> dict[str, Any]:
        return _plain(self.span.attributes)

    @property
    def events(self) -> list[str]:
        return [event.name for event in self.span.events]


@dataclass
class Collector(rpc.TraceServiceServicer):
    """Keeps what it is told."""

    spans: list[Seen] = field(default_factory=list)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    async def Export(
        self, request: pb.ExportTraceServiceRequest, context: Any
    ) -> pb.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            process = _plain(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [Seen(process, span) for span in scope.spans]
        self._came.set()
        return pb.ExportTraceServiceResponse()

    def named(self, name: str) -> list[Seen]:
        return [seen for seen in self.spans if seen.name == name]

    def parent(self, seen: Seen) -> Seen | None:
        wanted = seen.span.parent_span_id
        return next((one for one in self.spans if one.span.span_id == wanted), None)

    async def until(self, *names: str) -> None:
        """Spans of all these names have come."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not all(self.named(name) for name in names):
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            came = sorted({seen.name for seen in self.spans})
            raise AssertionError(f"of {names} there came only {came}") from None


@asynccontextmanager
async def collecting(port: int = 0) -> AsyncIterator[tuple[Collector, str]]:
    """A collector, and its endpoint."""
    collector, server = Collector(), grpc.aio.server()
    rpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield collector, f"http://127.0.0.1:{bound}"
    finally:
        await server.stop(0)


def _plain(attributes: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value"))
        for pair in attributes
        if pair.value.WhichOneof("value")
    }
