"""The edge over real HTTP, against scripted gRPC peers that speak scheduler.v1 and llm.v1."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from cohabit.common.v1 import common_pb2
from cohabit.llm.v1 import llm_pb2, llm_pb2_grpc
from cohabit.models.v1 import models_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from cohabit.scheduler.v1 import scheduler_pb2_grpc

from chassis.channel import PERMIT_ID, REQUEST_ID
from chassis.errors import Fault, Reason
from chassis.server import Server
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


class Peers(scheduler_pb2_grpc.SchedulerServiceServicer, llm_pb2_grpc.LanguageModelServiceServicer):
    """A scheduler and an engine that do what the test says and remember what happened, in order."""

    def __init__(self, folder: Path) -> None:
        self.scheduler_address = f"unix:{folder}/s.sock"
        self.engine_address = f"unix:{folder}/e.sock"
        self.happened: list[str] = []
        self.admits: list[pb.AdmitRequest] = []
        self.generates: list[llm_pb2.GenerateRequest] = []
        self.metadata: list[dict[str, Any]] = []
        self.admit: Script = self.grants
        self.generate: Script = self.says_hello
        self.status = pb.Status(reconciled=True)
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
                permit_id="p1", address=self.engine_address, model_key="smol-a"
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
        model = models_pb2.Model(key=MODEL, created_unix_ms=1_700_000_000_123, owner="hf")
        return pb.ListModelsResponse(models=[model])

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

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[Server]:
        server = Server(("cohabit.scheduler.v1.SchedulerService",), drain_s=0)
        scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(self, server.grpc)
        await server.start(self.scheduler_address)
        try:
            yield server
        finally:
            await server.stop()

    @asynccontextmanager
    async def engine(self) -> AsyncIterator[Server]:
        server = Server(("cohabit.llm.v1.LanguageModelService",), drain_s=0)
        llm_pb2_grpc.add_LanguageModelServiceServicer_to_server(self, server.grpc)
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
async def opened(folder: Path, **changes: Any) -> AsyncIterator[House]:
    config = edge_config(**changes)
    peers = Peers(folder)  # type: ignore[abstract]
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(peers.scheduler())
        engine = await stack.enter_async_context(peers.engine())
        app = await stack.enter_async_context(open_app(config, peers.scheduler_address))
        server = HttpServer(app, *config.address, config.drain_s)
        host, port = await server.start()
        stack.push_async_callback(server.stop)
        house = House(peers, server, f"http://{host}:{port}", scheduler, engine)
        stack.push_async_callback(house.http.aclose)
        stack.push_async_callback(house.openai.close)
        yield house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        yield house


# The official client, unmodified.


async def test_the_openai_client_lists_models(house: House) -> None:
    models = [model async for model in house.openai.models.list()]
    assert [(m.id, m.created, m.owned_by, m.object) for m in models] == [
        (MODEL, 1_700_000_000, "hf", "model")
    ]
    assert (await house.openai.models.retrieve(MODEL)).id == MODEL
    with pytest.raises(openai.NotFoundError) as caught:
        await house.openai.models.retrieve("no/such")
    assert caught.value.code == "model_not_found"


async def test_the_openai_client_chats(house: House) -> None:
    answer = await house.openai.chat.completions.create(**CHAT, max_tokens=5)
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 9
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 3
    assert answer.model == MODEL
    (sent,), (admit,) = house.peers.generates, house.peers.admits
    # The scheduler may grant a twin; the engine is asked for the model that it runs.
    assert (admit.model, sent.model, sent.max_tokens) == (MODEL, "smol-a", 5)
    assert house.peers.metadata[0][PERMIT_ID] == "p1"
    assert house.peers.metadata[0][REQUEST_ID] == admit.request_id


async def test_the_openai_client_streams_with_usage(house: House) -> None:
    stream = await house.openai.chat.completions.create(
        **CHAT, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == "Hello"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 2
    assert len({chunk.id for chunk in chunks}) == 1


async def test_an_unknown_model_is_not_found(house: House) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise Fault(Reason.MODEL_NOT_FOUND, "No model of that name.")
        yield

    house.peers.admit = refuses
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as caught:
            await house.openai.chat.completions.create(**{**CHAT, "model": "x"}, stream=stream)
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
        assert "The model `x` does not exist; GET /v1/models lists" in caught.value.message


@pytest.mark.parametrize("stream", [False, True])
async def test_a_long_prompt_is_a_bad_request(house: House, stream: bool) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise Fault(Reason.CONTEXT_LENGTH_EXCEEDED, "The prompt has 9000 tokens; 4096 fit.")
        yield

    house.peers.generate = refuses
    with pytest.raises(openai.BadRequestError) as caught:
        await house.openai.chat.completions.create(**CHAT, stream=stream)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    assert caught.value.request_id
    await house.peers.seen("admit over")


async def test_a_full_queue_says_when_to_come_back(house: House) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise Fault(Reason.QUEUE_FULL, "The queue is full.", retry_after_s=1.2)
        yield

    house.peers.admit = refuses
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "2"
    assert answer.headers["retry-after-ms"] == "1200"
    assert answer.json()["error"]["code"] == "queue_full"


# Failures in the middle.


async def breaks(_request: Any, context: Any) -> AsyncIterator[Any]:
    yield text("Hel")
    raise Fault(Reason.ENGINE_CRASHED, "The engine died.")


async def ends_early(_request: Any, _context: Any) -> AsyncIterator[Any]:
    yield text("Hel")


@pytest.mark.parametrize("script", [breaks, ends_early])
async def test_a_failure_in_the_middle_is_never_a_clean_end(house: House, script: Script) -> None:
    house.peers.generate = script
    stream = await house.openai.chat.completions.create(**CHAT, stream=True)
    chunks = aiter(stream)
    said = [(await anext(chunks)).choices[0].delta.content for _ in range(2)]
    assert said == ["", "Hel"]
    with pytest.raises(openai.APIError) as caught:
        await anext(chunks)
    assert caught.value.code == "engine_crashed"
    lines = await house.lines({**CHAT, "stream": True})
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "engine_crashed"
    assert "data: [DONE]" not in lines
    with pytest.raises(openai.InternalServerError):
        await house.openai.chat.completions.create(**CHAT)


async def test_a_lost_engine_is_an_error_event(house: House) -> None:
    house.peers.generate = house.peers.says_and_hangs
    async with house.http.stream(
        "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
    ) as answer:
        chunks = answer.aiter_text()
        assert "Hel" in await anext(chunks)
        await house.engine_server.grpc.stop(0)
        rest = "".join([chunk async for chunk in chunks])
    assert json.loads(rest.strip().removeprefix("data: "))["error"]["code"] == "engine_crashed"
    await house.peers.seen("admit over")


async def test_an_engine_that_is_not_there_is_503(house: House) -> None:
    await house.engine_server.grpc.stop(0)
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    await house.peers.seen("admit over")


# Clients that go away.


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


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("waiting", ["queues", "loads"])
async def test_leaving_while_waiting_gives_the_place_back(
    house: House, stream: bool, waiting: str
) -> None:
    house.peers.admit = getattr(house.peers, waiting)
    async with raw_post(house, {**CHAT, "stream": stream}):
        await house.peers.seen("admit")
    await house.peers.seen("admit over")
    assert house.peers.happened == ["admit", "admit over"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("running", ["hangs", "says_and_hangs"])
async def test_leaving_while_it_runs_ends_both_calls(
    house: House, stream: bool, running: str
) -> None:
    house.peers.generate = getattr(house.peers, running)
    loop = asyncio.get_running_loop()
    async with raw_post(house, {**CHAT, "stream": stream}) as reader:
        await house.peers.seen("generate")
        if stream and running == "says_and_hangs":
            await asyncio.wait_for(reader.readuntil(b"Hel"), DEADLINE_S)
    left_at = loop.time()
    await house.peers.seen("generate over")
    await house.peers.seen("admit over")
    # Two connections: which peer hears first is the kernel's choice. That the edge lets go of the
    # engine first is shown in the unit test of admission.
    assert house.peers.happened[:2] == ["admit", "generate"]
    assert len(house.peers.happened) == 4
    assert loop.time() - left_at < 1.0


async def test_a_finished_answer_closes_admit_after_the_engine_call(house: House) -> None:
    await house.lines({**CHAT, "stream": True})
    await house.peers.seen("admit over")
    assert house.peers.happened == ["admit", "generate", "generate over", "admit over"]


# Silence.


async def test_a_silent_stream_begins_with_comments(tmp_path: Path) -> None:
    async with opened(tmp_path, keepalive_s=0.05) as house:
        release = asyncio.Event()

        async def queues_then_grants(_request: Any, _context: Any) -> AsyncIterator[Any]:
            yield pb.AdmitResponse(queued=pb.AdmitResponse.Queued(position=3, resume_token="t1"))
            await release.wait()
            yield house.peers.granted()
            await asyncio.Event().wait()

        house.peers.admit = queues_then_grants
        async with house.http.stream(
            "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
        ) as answer:
            assert answer.status_code == 200
            chunks = answer.aiter_text()
            first = await anext(chunks) + await anext(chunks)
            assert first.startswith(": keepalive queued behind 3\n\n: keepalive")
            release.set()
            rest = "".join([chunk async for chunk in chunks])
        assert rest.endswith("data: [DONE]\n\n")


async def test_an_error_after_a_comment_is_an_event(tmp_path: Path) -> None:
    async with opened(tmp_path, keepalive_s=0.05) as house:
        release = asyncio.Event()

        async def fails_late(_request: Any, _context: Any) -> AsyncIterator[Any]:
            await release.wait()
            raise Fault(Reason.MODEL_FAILED, "It does not load.", retry_after_s=3)
            yield

        house.peers.admit = fails_late
        async with house.http.stream(
            "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
        ) as answer:
            chunks = answer.aiter_text()
            assert await anext(chunks) == ": keepalive\n\n"
            release.set()
            rest = "".join([chunk async for chunk in chunks])
        assert rest.split("\n\n")[-2].startswith('data: {"error":{"message":"It does not load."')
        assert "[DONE]" not in rest


async def test_a_client_that_reads_nothing_is_ended(tmp_path: Path) -> None:
    async with opened(tmp_path, write_stall_s=0.3, keepalive_s=0.1) as house:

        async def floods(_request: Any, _context: Any) -> AsyncIterator[Any]:
            while True:
                yield text("x" * 65536)

        house.peers.generate = floods
        async with raw_post(house, {**CHAT, "stream": True}):
            # Though nobody reads what comes:
            await house.peers.seen("generate over")
            await house.peers.seen("admit over")


# The scheduler goes and comes.


async def test_without_a_scheduler_a_new_call_is_refused_at_once(house: House) -> None:
    await house.scheduler_server.grpc.stop(0)
    began = asyncio.get_running_loop().time()
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert asyncio.get_running_loop().time() - began < 2.0
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["error"]["code"] == "service_unavailable"
    with pytest.raises(openai.InternalServerError):
        await house.openai.models.list()
    assert (await house.http.get("/readyz")).status_code == 503
    health = await house.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "degraded")


async def test_a_waiting_call_resumes_by_its_token(house: House) -> None:
    house.peers.admit = house.peers.queues
    call = asyncio.create_task(house.lines({**CHAT, "stream": True}))
    await house.peers.seen("admit")
    await house.scheduler_server.grpc.stop(0)
    house.peers.admit = house.peers.grants
    async with house.peers.scheduler():
        lines = await asyncio.wait_for(call, DEADLINE_S)
    assert lines[-1] == "data: [DONE]"
    assert [admit.resume_token for admit in house.peers.admits] == ["", "t1"]


async def test_a_waiting_call_gives_up_after_a_while(tmp_path: Path) -> None:
    async with opened(tmp_path, resume_s=0.3) as house:
        house.peers.admit = house.peers.queues
        call = asyncio.create_task(house.http.post("/v1/chat/completions", json=CHAT))
        await house.peers.seen("admit")
        await house.scheduler_server.grpc.stop(0)
        answer = await asyncio.wait_for(call, DEADLINE_S)
        assert answer.status_code == 503
        assert "retry-after" in answer.headers


async def test_a_scheduler_that_says_nothing_is_taken_as_gone(tmp_path: Path) -> None:
    async with opened(tmp_path, admit_answer_s=0.2) as house:

        async def silent(_request: Any, _context: Any) -> AsyncIterator[Any]:
            await asyncio.Event().wait()
            yield house.peers.granted()

        house.peers.admit = silent
        answer = await house.http.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 503
        await house.peers.seen("admit over")


async def test_a_granted_call_outlives_the_scheduler(house: House) -> None:
    go_on = asyncio.Event()

    async def says_in_two(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield text("Hel")
        await go_on.wait()
        yield finish("lo")

    house.peers.generate = says_in_two
    async with house.http.stream(
        "POST", "/v1/chat/completions", json={**CHAT, "stream": True}
    ) as answer:
        chunks = answer.aiter_text()
        assert "Hel" in await anext(chunks)
        await house.scheduler_server.grpc.stop(0)
        go_on.set()
        rest = "".join([chunk async for chunk in chunks])
    assert rest.endswith("data: [DONE]\n\n")


async def test_ready_only_when_reconciled(house: House) -> None:
    assert (await house.http.get("/readyz")).status_code == 200
    house.peers.status = pb.Status(reconciled=False)
    answer = await house.http.get("/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    house.peers.status = pb.Status(reconciled=True, unreachable_workers=["llm"])
    assert (await house.http.get("/readyz")).status_code == 200
    assert "llm" in (await house.http.get("/health")).json()["reason"]


# Manners.


async def test_malformed_json_says_where(house: House) -> None:
    answer = await house.http.post("/v1/chat/completions", content=b'{"model": "x",}')
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "malformed_json"
    assert "byte 14" in answer.json()["error"]["message"]
    assert house.peers.admits == []


async def test_unknown_routes_and_methods(house: House) -> None:
    lost = await house.http.get("/v1/nothing")
    assert (lost.status_code, lost.json()["error"]["code"]) == (404, "route_not_found")
    assert "/v1/chat/completions" in lost.json()["error"]["message"]
    wrong = await house.http.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    assert (await house.http.post("/health")).status_code == 405


@pytest.mark.parametrize(
    ("given", "expected"),
    [("abc-1", "abc-1"), ("a\tb", "ab"), ("x" * 200, "x" * 128)],
)
async def test_the_request_id_goes_in_and_out(house: House, given: str, expected: str) -> None:
    answer = await house.http.post(
        "/v1/chat/completions", json=CHAT, headers={"x-request-id": given}
    )
    assert answer.headers["x-request-id"] == expected
    assert house.peers.admits[0].request_id == expected
    assert (await house.http.get("/nowhere")).headers["x-request-id"]


@pytest.mark.parametrize(
    ("wish", "tier"),
    [
        (None, common_pb2.TIER_FREE),
        ("background", common_pb2.TIER_BACKGROUND),
        ("paid", common_pb2.TIER_SUB),
    ],
)
async def test_tiers_are_clamped(tmp_path: Path, wish: str | None, tier: int) -> None:
    async with opened(tmp_path, open_tier_ceiling="sub") as house:
        headers = {} if wish is None else {"x-cohabit-tier": wish}
        await house.http.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert house.peers.admits[0].tier == tier
        answer = await house.http.post(
            "/v1/chat/completions", json=CHAT, headers={"x-cohabit-tier": "gold"}
        )
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-cohabit-tier")


async def test_bodies_are_bounded(tmp_path: Path) -> None:
    async def halves() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 600_000

    async with opened(tmp_path, max_body_mib=1) as house:
        answer = await house.http.post("/v1/chat/completions", content=b" " * (2 << 20))
        assert answer.json()["error"]["code"] == "payload_too_large"
        assert answer.status_code == 413
        answer = await house.http.post("/v1/chat/completions", content=halves())
        assert answer.status_code == 413


async def test_open_requests_are_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path, max_open_requests=1) as house:
        house.peers.admit = house.peers.queues
        waiting = asyncio.create_task(house.http.post("/v1/chat/completions", json=CHAT))
        await house.peers.seen("admit")
        answer = await house.http.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        waiting.cancel()
        await house.peers.seen("admit over")
        house.peers.admit = house.peers.grants
        assert (await house.http.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_docs_and_metrics(house: House) -> None:
    document = (await house.http.get("/openapi.json")).json()
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"]["$ref"].endswith("/ChatBody")
    assert "temperature" in document["components"]["schemas"]["ChatBody"]["properties"]
    assert "HTTPValidationError" not in json.dumps(document)
    assert "swagger" in (await house.http.get("/docs")).text
    await house.http.get("/v1/models/smol")
    await house.lines({**CHAT, "stream": True})
    metrics = (await house.http.get("/metrics")).text
    assert 'cohabit_http_requests_total{route="/v1/chat/completions",status="200"}' in metrics
    assert 'cohabit_http_requests_total{route="/v1/models/{name:path}",status="200"}' in metrics


async def test_a_bug_is_answered_tamely(house: House) -> None:
    house.peers.granted = lambda: pb.AdmitResponse(  # type: ignore[method-assign]
        granted=pb.AdmitResponse.Granted(address="nonsense://[", model_key="m", permit_id="\n")
    )
    answer = await house.http.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 500
    assert "Traceback" not in answer.text
    assert answer.json()["error"]["code"] == "internal"
    assert answer.headers["x-request-id"]


async def test_stopping_refuses_what_waits_and_cuts_what_streams(house: House) -> None:
    house.peers.generate = house.peers.says_and_hangs
    async with raw_post(house, {**CHAT, "stream": True}) as reader:
        await asyncio.wait_for(reader.readuntil(b"Hel"), DEADLINE_S)
        house.peers.admit = house.peers.queues
        waiting = asyncio.create_task(house.http.post("/v1/chat/completions", json=CHAT))
        await house.peers.admitted(2)
        await asyncio.wait_for(house.edge.stop(), DEADLINE_S)
        rest = await asyncio.wait_for(reader.read(), DEADLINE_S)
    assert b"[DONE]" not in rest
    assert not rest.endswith(b"0\r\n\r\n")
    answer = await waiting
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "service_unavailable"


# As a process.


async def run_edge(config: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "edge",
        "--config",
        str(config),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COHABIT_LOG": ""},
    )


async def until(process: asyncio.subprocess.Process, check: Callable[[bytes], Any]) -> Any:
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        while line := await process.stderr.readline():
            if found := check(line):
                return found
    raise AssertionError("the edge ended without saying it")


async def test_the_process_serves_and_stops_on_sigterm(tmp_path: Path) -> None:
    config = tmp_path / "cohabit.yaml"
    config.write_text(f"run_dir: {tmp_path}\nedge:\n  listen: 127.0.0.1:0\n  drain_s: 1\n")
    process = await run_edge(config)
    try:
        url = await until(process, lambda line: b"serving" in line and json.loads(line)["address"])
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"{url}/health")).json()["status"] == "degraded"
        process.send_signal(signal.SIGTERM)
        _, rest = await asyncio.wait_for(process.communicate(), DEADLINE_S)
        assert process.returncode == 0, rest
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_process_refuses_an_open_address(tmp_path: Path) -> None:
    config = tmp_path / "cohabit.yaml"
    config.write_text(f"run_dir: {tmp_path}\nedge:\n  listen: 0.0.0.0:8080\n")
    process = await run_edge(config)
    _, said = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 2
    assert b"cohabit.yaml:3: edge.listen" in said
    assert b"no API keys" in said
