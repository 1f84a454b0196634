"""An edge on a free port, its clients, and scripted gRPC peers for it: what its tests share."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import openai

from chassis.server import Server
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc
from cohabit.simulated.v1 import simulated_pb2, simulated_pb2_grpc
from edge.app import open_app
from edge.config import EdgeConfig
from edge.server import HttpServer

DEADLINE_S = 10.0
MODEL = "smol"
CHAT: Any = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}

Script = Callable[[Any, Any], AsyncIterator[Any]]


def text(said: str, tokens: int = 1) -> llm_pb2.GenerateResponse:
    return llm_pb2.GenerateResponse(text=said, tokens=tokens)


def finish(said: str = "") -> llm_pb2.GenerateResponse:
    usage = llm_pb2.Usage(prompt_tokens=7, cached_prompt_tokens=3, completion_tokens=2)
    end = llm_pb2.Finish(reason=llm_pb2.FINISH_REASON_STOP, usage=usage)
    return llm_pb2.GenerateResponse(text=said, finish=end)


class Peers(
    scheduler_pb2_grpc.SchedulerServiceServicer,
    llm_pb2_grpc.LanguageModelServiceServicer,
    simulated_pb2_grpc.SimulatedServiceServicer,
):
    """A scheduler and an engine that do what the test says and remember what happened, in order.

    The engine stands for the model services, too.
    """

    def __init__(self, folder: Path) -> None:
        self.scheduler_address = f"unix:{folder}/s.sock"
        self.engine_address = f"unix:{folder}/e.sock"
        self.happened: list[str] = []
        self.admits: list[pb.AdmitRequest] = []
        self.generates: list[llm_pb2.GenerateRequest] = []
        self.counts: list[llm_pb2.CountTokensRequest] = []
        self.runs: list[simulated_pb2.RunRequest] = []
        self.metadata: list[dict[str, Any]] = []
        self.admit: Script = self.grants
        self.generate: Script = self.says_hello
        self.run: Script = self.pretends
        self.status = pb.Status(reconciled=True)
        self.models = [models_pb2.Model(key=MODEL, created_unix_ms=1_700_000_000_123, owner="hf")]
        self._changed = asyncio.Condition()

    async def note(self, what: str) -> None:
        async with self._changed:
            self.happened.append(what)
            self._changed.notify_all()

    async def seen(self, what: str) -> None:
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: what in self.happened)

    async def admitted(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: self.happened.count("admit") >= count)

    # What the scheduler does.

    def granted(self) -> pb.AdmitResponse:
        return pb.AdmitResponse(
            granted=pb.AdmitResponse.Granted(
                permit_id="p1",
                address=self.engine_address,
                model_key="smol-a",
                queue_wait_ms=7,
                transient_lease_id="l1",
                transient_mib=90,
            )
        )

    async def grants(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        yield self.granted()
        await asyncio.Event().wait()

    async def queues(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        yield pb.AdmitResponse(queued=pb.AdmitResponse.Queued(position=3, resume_token="t1"))
        await asyncio.Event().wait()

    async def loads(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        yield pb.AdmitResponse(loading=pb.AdmitResponse.Loading(model_key=MODEL, progress=0.5))
        await asyncio.Event().wait()

    async def Admit(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.admits.append(request)
        await self.note("admit")
        try:
            async for event in self.admit(request, context):
                yield event
        finally:
            await self.note("admit over")

    async def GetStatus(self, _request: Any, _context: Any) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(status=self.status)

    async def ListModels(self, _request: Any, _context: Any) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=self.models)

    # What the engine does.

    async def says_hello(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        yield text("Hel")
        yield text("lo")
        yield finish()

    async def says_and_hangs(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        yield text("Hel")
        await asyncio.Event().wait()

    async def hangs(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield finish()

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.generates.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        await self.note("generate")
        try:
            async for event in self.generate(request, context):
                yield event
        finally:
            await self.note("generate over")

    async def CountTokens(self, request: Any, _context: Any) -> llm_pb2.CountTokensResponse:
        self.counts.append(request)
        return llm_pb2.CountTokensResponse(tokens=42, context_tokens=4096)

    async def pretends(self, request: Any, _context: Any) -> AsyncIterator[Any]:
        yield simulated_pb2.RunResponse(progress=0.5)
        done = simulated_pb2.RunResponse.Done(
            model=request.model, ran_ms=20, transient_mib=request.transient_mib
        )
        yield simulated_pb2.RunResponse(done=done)

    async def Run(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.runs.append(request)
        await self.note("run")
        try:
            async for event in self.run(request, context):
                yield event
        finally:
            await self.note("run over")

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[Server]:
        server = Server(("cohabit.scheduler.v1.SchedulerService",), drain_s=0)
        scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(self, server.grpc)
        await server.start(self.scheduler_address)
        try:
            yield server
        finally:
            await server.stop()

    def serve(self, server: Server) -> None:
        """What stands at the engine's address."""
        llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(self, server.grpc)
        simulated_pb2_grpc.add_SimulatedServiceServicer_to_server(self, server.grpc)

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Server]:
        server = Server(("cohabit.llm.v1.LanguageModelService",), drain_s=0)
        self.serve(server)
        await server.start(self.engine_address)
        try:
            yield server
        finally:
            await server.stop()


class House:
    """An edge with its peers and clients."""

    def __init__(
        self, peers: Peers, edge: HttpServer, url: str, scheduler: Server, engine: Server
    ) -> None:
        self.peers, self.edge, self.url = peers, edge, url
        self.scheduler_server, self.engine_server = scheduler, engine
        self.http = httpx.AsyncClient(base_url=url, timeout=DEADLINE_S, trust_env=False)
        self.openai = openai.AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        )

    async def lines(self, body: dict[str, Any]) -> list[str]:
        answer = await self.http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return [line for line in answer.text.split("\n\n") if line]


def edge_config(**changes: Any) -> EdgeConfig:
    return EdgeConfig(listen="127.0.0.1:0", **{"keepalive_s": 5.0, "drain_s": 1.0, **changes})


@asynccontextmanager
async def opened(
    folder: Path,
    services: Sequence[str] = ("llm",),
    kind: Callable[[Path], Peers] = Peers,
    jobs: bool = False,
    **changes: Any,
) -> AsyncIterator[House]:
    config = edge_config(**changes)
    peers = kind(folder)
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(peers.scheduler())
        engine = await stack.enter_async_context(peers.engine())
        addresses = dict.fromkeys(services, peers.engine_address)
        app = await stack.enter_async_context(
            open_app(
                config,
                peers.scheduler_address,
                addresses,
                peers.engine_address,
                peers.engine_address if jobs else "",
            )
        )
        server = HttpServer(app, *config.address, config.drain_s)
        host, port = await server.start()
        stack.push_async_callback(server.stop)
        house = House(peers, server, f"http://{host}:{port}", scheduler, engine)
        stack.push_async_callback(house.http.aclose)
        stack.push_async_callback(house.openai.close)
        yield house


@asynccontextmanager
async def raw_post(house: House, body: dict[str, Any]) -> AsyncIterator[asyncio.StreamReader]:
    """A bare connection with a request on it; dropped without manners at the end of the block."""
    reader, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
    raw = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    try:
        yield reader
    finally:
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()
