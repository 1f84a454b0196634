"""The edge over real HTTP against scripted gRPC peers: dialect, manners, process."""

import asyncio
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import structlog

from chassis.channel import PERMIT_ID, REQUEST_ID
from chassis.errors import Fault, Reason
from cli.health import edge_health
from cohabit.common.v1 import common_pb2
from cohabit.scheduler.v1 import scheduler_pb2 as pb
from edge import chat_request
from tests.edge_kit import CHAT, DEADLINE_S, MODEL, House, opened


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
    assert answer.model == "smol-a"
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


# Probes.


async def test_ready_only_when_reconciled(house: House) -> None:
    assert (await house.http.get("/readyz")).status_code == 200
    house.peers.status = pb.Status(reconciled=False)
    answer = await house.http.get("/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    house.peers.status = pb.Status(reconciled=True, unreachable_workers=["llm"])
    assert (await house.http.get("/readyz")).status_code == 200
    assert "llm" in (await house.http.get("/health")).json()["reason"]


@pytest.mark.parametrize(
    ("unreachable", "said"),
    [(["llm"], "These model services do not answer: llm."), ([], "There is no model;")],
)
async def test_not_ready_without_a_model_to_serve(
    house: House, unreachable: list[str], said: str
) -> None:
    house.peers.status = pb.Status(reconciled=True, unreachable_workers=unreachable)
    house.peers.models = []
    answer = await house.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["error"]["message"].startswith(said)
    assert (await house.http.get("/health")).json()["reason"].startswith(said)
    assert (await edge_health(house.url)).detail.startswith(f"is not ready: {said}")


async def test_probes_are_logged_for_debugging_alone(house: House) -> None:
    with structlog.testing.capture_logs() as lines:
        for path in ("/readyz", "/v1/models"):
            await house.http.get(path)
    told = {line["route"]: line["log_level"] for line in lines if line["event"] == "request"}
    assert told == {"/readyz": "debug", "/v1/models": "info"}


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


async def test_the_docs_page_needs_nothing_from_elsewhere(house: House) -> None:
    page = await house.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text
    loaded = dict.fromkeys(re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page.text))
    types = [(await house.http.get(f"/{path}")).headers["content-type"] for path in loaded]
    assert types == ["text/css; charset=utf-8", "text/javascript; charset=utf-8"]
    (document,) = re.findall(r"url: '([^']+)'", page.text)
    assert (await house.http.get(f"/{document}")).json()["info"]["title"] == "Cohabit"


async def test_the_root_says_where_to_read_on(house: House) -> None:
    said = (await house.http.get("/")).json()
    assert said["service"] == "cohabit"
    for key in ("docs", "openapi"):
        assert (await house.http.get(said[key])).status_code == 200


async def test_the_document_tells_the_truth_of_every_route(house: House) -> None:
    document = (await house.http.get("/openapi.json")).json()
    assert document["info"]["description"]
    told = {
        path: {status: sorted(answer["content"]) for status, answer in said["responses"].items()}
        for path, methods in document["paths"].items()
        for said in methods.values()
        # Not the routes to models, which may answer in many more ways.
        if ("post" not in methods and not path.startswith("/v1/responses"))
        or path.startswith("/v1/admin")
    }
    json_only = ["application/json"]
    statuses = ("200", "400", "403", "404", "409", "413", "501", "503")
    changes = dict.fromkeys(statuses, json_only)
    assert told == {
        "/": {"200": json_only},
        "/errors": {"200": json_only},
        "/health": {"200": json_only},
        "/metrics": {"200": ["text/plain"]},
        "/readyz": {"200": json_only, "503": json_only},
        "/status": {"200": json_only},
        "/v1/admin/gpu-memory": {"200": json_only, "403": json_only, "503": json_only},
        "/v1/admin/models": {"200": json_only, "403": json_only, "503": json_only},
        "/v1/admin/models/{name}/load": changes,
        "/v1/admin/models/{name}/swap": changes,
        "/v1/admin/models/{name}/unload": changes,
        "/v1/models": {"200": json_only, "400": json_only, "503": json_only},
        "/v1/models/{name}": {"200": json_only, "404": json_only, "503": json_only},
    }
    operations = [said for path in document["paths"].values() for said in path.values()]
    assert all(" " in said["summary"] for said in operations)
    assert len({said["operationId"] for said in operations}) == len(operations)
    refs = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(document)))
    assert refs <= set(document["components"]["schemas"])


async def test_docs_and_metrics(house: House) -> None:
    document = (await house.http.get("/openapi.json")).json()
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"]["$ref"].endswith("/ChatBody")
    assert "temperature" in document["components"]["schemas"]["ChatBody"]["properties"]
    assert "HTTPValidationError" not in json.dumps(document)
    await house.http.get("/v1/models/smol")
    await house.lines({**CHAT, "stream": True})
    metrics = (await house.http.get("/metrics")).text
    for route in ("/v1/chat/completions", "/v1/models/{name:path}"):
        labels = f'{{service="edge",outcome="ok",route="{route}",status="200"}}'
        assert f"cohabit_http_requests_total{labels}" in metrics


async def test_a_bug_is_answered_tamely(house: House) -> None:
    house.peers.granted = lambda: pb.AdmitResponse(  # type: ignore[method-assign]
        granted=pb.AdmitResponse.Granted(address="nonsense://[", model_key="m", permit_id="\n")
    )
    answer = await house.http.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 500
    assert "Traceback" not in answer.text
    assert answer.json()["error"]["code"] == "internal"
    assert answer.headers["x-request-id"]


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
    assert b"without API keys" in said


async def test_the_process_says_that_its_port_is_taken(house: House, tmp_path: Path) -> None:
    address = house.url.removeprefix("http://")
    config = tmp_path / "cohabit.yaml"
    config.write_text(f"run_dir: {tmp_path}\nedge:\n  listen: {address}\n")
    process = await run_edge(config)
    _, said = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 2
    assert said.decode() == f"edge.listen: cannot listen on {address}: Address already in use\n"


@pytest.mark.parametrize(("size", "aside"), [(1_000, False), (300_000, True)])
async def test_large_bodies_are_parsed_aside(
    house: House, size: int, aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    parse = chat_request.parse

    def noting(body: bytes) -> chat_request.ChatRequest:
        threads.append(threading.get_ident())
        return parse(body)

    monkeypatch.setattr(chat_request, "parse", noting)
    messages = [{"role": "user", "content": "x" * size}]
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "messages": messages})
    assert answer.status_code == 200
    assert (threads[0] != threading.get_ident()) == aside
