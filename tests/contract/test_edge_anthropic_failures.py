"""Anthropic's dialect while it is silent and when it fails: pings, errors in its own words."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
import structlog

from chassis.errors import Fault, Reason
from cohabit.scheduler.v1 import scheduler_pb2
from tests.anthropic_kit import client_of, refuses
from tests.edge_kit import MODEL, House, opened, text

ASK: Any = {
    "model": MODEL,
    "max_tokens": 50,
    "messages": [{"role": "user", "content": "Hello"}],
}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        house.peers.models[0].service = "llm"
        yield house


@pytest.fixture
async def client(house: House) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with client_of(house) as client:
        yield client


# While it is silent, and when it fails.


async def test_pings_while_it_waits(tmp_path: Path) -> None:
    async with opened(tmp_path, keepalive_s=0.05) as house, client_of(house) as client:
        url, granted = f"{house.url}/v1/messages", asyncio.Event()

        async def waits(request: Any, context: Any) -> AsyncIterator[Any]:
            yield scheduler_pb2.AdmitResponse(
                queued=scheduler_pb2.AdmitResponse.Queued(position=3, resume_token="t")
            )
            await granted.wait()
            async for event in house.peers.grants(request, context):
                yield event

        house.peers.admit = waits
        body = {**ASK, "stream": True}
        with structlog.testing.capture_logs() as lines:
            async with house.http.stream("POST", url, json=body) as answer:
                pieces = answer.aiter_text()
                before = ""
                while "event: ping" not in before:
                    before += await anext(pieces)
                granted.set()
                after = "".join([piece async for piece in pieces])
        assert answer.status_code == 200
        assert 'event: ping\ndata: {"type":"ping"}\n\n' in before
        assert "queued behind 3" in before
        assert after.index("message_start") < after.index("message_stop")
        (line,) = [line for line in lines if line["event"] == "request"]
        assert line["ttft_ms"] >= 50
        granted.clear()
        waiting = asyncio.create_task(streamed(client))
        await house.peers.admitted(2)
        asyncio.get_running_loop().call_later(0.15, granted.set)
        assert await waiting == "Hello"


async def streamed(client: anthropic.AsyncAnthropic) -> str:
    async with client.messages.stream(**ASK) as stream:
        return await stream.get_final_text()


async def test_a_failure_in_mid_stream_is_no_end(
    house: House, client: anthropic.AsyncAnthropic
) -> None:
    async def breaks(_request: Any, _context: Any) -> AsyncIterator[Any]:
        yield text("Hel")
        raise Fault(Reason.ENGINE_CRASHED, "The engine died.")

    house.peers.generate = breaks
    with pytest.raises(anthropic.APIStatusError) as caught:
        await streamed(client)
    assert caught.value.type == "overloaded_error"
    assert caught.value.error_code == Reason.ENGINE_CRASHED
    told = (await house.http.post("/v1/messages", json={**ASK, "stream": True})).text
    assert "Hel" in told
    assert told.rstrip().rpartition("\n\n")[2].startswith("event: error\n")
    assert "message_stop" not in told


ERRORS: Any = [
    (Reason.MODEL_NOT_FOUND, anthropic.NotFoundError, "not_found_error"),
    (Reason.CONTEXT_LENGTH_EXCEEDED, anthropic.BadRequestError, "invalid_request_error"),
    (Reason.QUEUE_FULL, anthropic.RateLimitError, "rate_limit_error"),
    (Reason.NO_HEADROOM, anthropic.InternalServerError, "overloaded_error"),
    (Reason.MODEL_BUSY, anthropic.ConflictError, "invalid_request_error"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("reason", "kind", "word"), ERRORS)
async def test_errors_are_of_its_classes(
    house: House,
    client: anthropic.AsyncAnthropic,
    reason: Reason,
    kind: type[anthropic.APIStatusError],
    word: str,
    stream: bool,
) -> None:
    house.peers.admit = refuses(Fault(reason, "Words."))
    with pytest.raises(kind) as caught:
        await client.messages.create(**ASK, stream=stream)
    error = caught.value
    assert (error.type, error.error_code) == (word, reason)
    assert error.request_id == error.response.headers["x-request-id"]
    assert error.body["request_id"] == error.request_id  # type: ignore[index]


async def test_its_client_comes_back_when_it_is_told(house: House) -> None:
    refusal = refuses(Fault(Reason.NO_HEADROOM, "Words.", retry_after_s=0.01))

    async def once(request: Any, context: Any) -> AsyncIterator[Any]:
        house.peers.admit = house.peers.grants
        async for event in refusal(request, context):
            yield event

    house.peers.admit = once
    async with client_of(house) as client:
        answer = await client.with_options(max_retries=1).messages.create(**ASK)
    assert answer.stop_reason == "end_turn"
    assert len(house.peers.admits) == 2


async def test_an_image_is_refused(house: House, client: anthropic.AsyncAnthropic) -> None:
    source: Any = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    turns: Any = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    with pytest.raises(anthropic.BadRequestError) as caught:
        await client.messages.create(**{**ASK, "messages": turns})
    assert caught.value.error_code == Reason.MODALITY_UNSUPPORTED
    assert "`messages[0].content[0]`" in (caught.value.api_message or "")
    assert house.peers.admits == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/messages", b"{", 400),
        ("POST", "/v1/messages", b" " * (2 << 20), 413),
        ("POST", "/v1/messages/count_tokens", b" " * (2 << 20), 413),
        ("GET", "/v1/messages", b"", 405),
        ("POST", "/v1/messages/batches", b"{}", 404),
        ("GET", "/v1/models/no/such", b"", 404),
        ("GET", "/v1/models?limit=0", b"", 400),
    ],
)
async def test_every_refusal_is_in_its_words(
    tmp_path: Path, method: str, path: str, body: bytes, status: int
) -> None:
    async with opened(tmp_path, max_body_mib=1) as house:
        headers = {"anthropic-version": "2023-06-01", "x-request-id": "r1"}
        answer = await house.http.request(method, path, content=body, headers=headers)
        assert answer.status_code == status
        said = answer.json()
        assert (said["type"], said["request_id"]) == ("error", "r1")
        assert (answer.headers["request-id"], answer.headers["x-request-id"]) == ("r1", "r1")


async def test_a_request_leaves_its_dialect_behind(house: House) -> None:
    # One connection, and so one task after the other in it.
    for path, key in (("/v1/messages", "type"), ("/v1/chat/completions", "param")):
        answer = await house.http.post(path, content=b"{")
        body = answer.json()
        assert key in (body if path == "/v1/messages" else body["error"])
        assert ("request-id" in answer.headers) == (path == "/v1/messages")
