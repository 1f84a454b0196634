"""The edge through a real Envoy: clients notice nothing of it, and nobody gets in by it."""

import io
import json
import socket
import ssl
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from chassis.errors import Fault, Reason
from cohabit.scheduler.v1 import scheduler_pb2
from edge.speech import OPENAI
from tests.envoy_kit import Envoy, fronting
from tests.integration.house import ROOT, House, running, until

ENDLESS: dict[str, Any] = {
    "model": "smollm2",  # takes over ten seconds for this, where the tiny one takes two
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 1500,
    "ignore_eos": True,
    "stream": True,
}
SHORT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 2,
    "extra_body": {"ignore_eos": True},
}
FREED_S = 0.2
NETWORK = ROOT / "models" / "u2netp.onnx"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    cutter: dict[str, object] = {"models": {"u2netp": {"path": str(NETWORK), "threads": 1}}}
    with running(tmp_path_factory.mktemp("h"), matte=cutter) as house:
        body = ENDLESS | {"max_tokens": 1, "stream": False}
        loaded = httpx.post(f"{house.url}/v1/chat/completions", json=body, timeout=60)
        assert loaded.status_code == 200, loaded.text
        yield house


@pytest.fixture(scope="module")
def envoy(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envoy]:
    with fronting(house, tmp_path_factory.mktemp("e")) as envoy:
        yield envoy


@pytest.fixture
async def http(envoy: Envoy) -> AsyncIterator[httpx.AsyncClient]:
    trusted = ssl.create_default_context(cafile=str(envoy.certificate))
    async with httpx.AsyncClient(
        base_url=envoy.url("public"), verify=trusted, http2=True, timeout=60, trust_env=False
    ) as client:
        yield client


async def first_text(lines: AsyncIterator[str]) -> None:
    while text := await anext(lines) or "-":
        if '"content":"' in text and '"content":""' not in text:
            return


def heavy_picture(size_bytes: int) -> bytes:
    """A PNG of few pixels and many bytes: readers pass over a chunk that they do not know."""
    out = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(out, "PNG")
    raw = out.getvalue()
    body = b"hvYy" + bytes(size_bytes)
    chunk = size_bytes.to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    return raw[:33] + chunk + raw[33:]  # behind the signature and the header


async def test_the_official_client_speaks_tls_and_http2(
    envoy: Envoy,
) -> None:
    trusted = ssl.create_default_context(cafile=str(envoy.certificate))
    http = openai.DefaultAsyncHttpxClient(verify=trusted, http2=True, trust_env=False)
    base = f"{envoy.url('public')}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="none", http_client=http) as client:
        raw = await client.chat.completions.with_raw_response.create(**SHORT)
        listed = await client.models.list()
    assert raw.http_response.http_version == "HTTP/2"
    assert raw.parse().usage.completion_tokens == 2
    assert "tiny" in [model.id for model in listed.data]


async def test_an_event_arrives_before_the_next_is_made(
    house: House, http: httpx.AsyncClient
) -> None:
    async with http.stream("POST", "/v1/chat/completions", json=ENDLESS) as answer:
        lines = answer.aiter_lines()
        await first_text(lines)
        assert (await house.status()).permits_in_use == 1, "it came when all was over"
        await first_text(lines)


async def test_a_stream_ends_as_the_edge_ends_it(http: httpx.AsyncClient) -> None:
    body = ENDLESS | {"max_tokens": 20}
    async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]"


@pytest.mark.parametrize("http2", [True, False])
async def test_who_hangs_up_frees_the_permit(house: House, envoy: Envoy, *, http2: bool) -> None:
    trusted = ssl.create_default_context(cafile=str(envoy.certificate))
    async with house.scheduler() as stub:

        async def free() -> bool:
            answer = await stub.GetStatus(scheduler_pb2.GetStatusRequest())
            return answer.status.permits_in_use == 0

        await until(free, 5, "nothing runs")
        async with (
            httpx.AsyncClient(
                base_url=envoy.url("public"), verify=trusted, http2=http2, trust_env=False
            ) as client,
            client.stream("POST", "/v1/chat/completions", json=ENDLESS) as answer,
        ):
            await first_text(answer.aiter_lines())
            assert not await free()
            hung_up = time.monotonic()
        await until(free, 5, "the permit is free")
        assert time.monotonic() - hung_up < FREED_S


async def test_a_picture_of_forty_mebibytes_passes(envoy: Envoy) -> None:
    async with httpx.AsyncClient(base_url=envoy.url("plain"), timeout=60) as http:
        answer = await http.post(
            "/v1/images/background-removals",
            files={"image": ("heavy.png", heavy_picture(40 << 20), "image/png")},
        )
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith(("application/json", "image/"))


async def test_a_request_keeps_its_id(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/models", headers={"x-request-id": "my-own-id"})
    assert answer.headers.get_list("x-request-id") == ["my-own-id"]
    assert len((await http.get("/v1/models")).headers["x-request-id"]) >= 32


ADMIN = "/v1/admin/models"
WAYS_IN: list[tuple[str, dict[str, str]]] = [
    (ADMIN, {}),
    (f"{ADMIN}/tiny/unload", {}),
    ("/V1/Admin/models", {}),
    ("//v1///admin//models", {}),
    ("/v1/models/../admin/models", {}),
    ("/v1/%2e%2e/v1/admin/models", {}),
    ("/v1/%61dmin/models", {}),
    ("/v1%2fadmin/models", {}),
    ("/v1%5cadmin/models", {}),
    ("/v1\\admin/models", {}),
    ("/v1/admin/models?x=/health", {}),
    ("/v1/admin;/models", {}),
    ("/./v1/./admin/./models", {}),
    ("/health/../v1/admin/models", {}),
    ("/rest/v1/leases", {}),
    ("/rest/v1/models", {}),
    ("/cohabit.broker.v1.BrokerService/ListLeases", {}),
    ("/cohabit.scheduler.v1.SchedulerService/GetStatus", {"content-type": "application/grpc"}),
    (ADMIN, {"x-forwarded-for": "127.0.0.1"}),
    (ADMIN, {"forwarded": "for=127.0.0.1;host=localhost"}),
    (ADMIN, {"x-real-ip": "127.0.0.1", "host": "localhost"}),
    (ADMIN, {"x-envoy-external-address": "127.0.0.1", "x-envoy-internal": "true"}),
    ("/health", {"x-original-url": ADMIN, "x-rewrite-url": ADMIN}),
    ("/health", {"x-envoy-original-path": ADMIN}),
]


@pytest.mark.parametrize("listener", ["public", "plain"])
@pytest.mark.parametrize(("path", "headers"), WAYS_IN)
def test_nothing_of_the_insides_opens(
    envoy: Envoy, listener: str, path: str, headers: dict[str, str]
) -> None:
    """curl, which sends a path as it stands."""
    for method in ("GET", "POST"):
        command = ["curl", "-sk", "--path-as-is", "-X", method, "-w", "\n%{http_code}"]
        for name, value in headers.items():
            command += ["-H", f"{name}: {value}"]
        done = subprocess.run(
            [*command, f"{envoy.url(listener)}{path}"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        body, _, status = done.stdout.rpartition("\n")
        if path == "/health":  # the path that was asked for, and no other
            assert status in ("200", "405")
            assert "tiny" not in body
            continue
        assert status in ("400", "403", "404", "405", "200"), status
        if status == "403":
            assert "not through here" in body, "it came as far as the edge"
        if status == "200":  # gRPC tells its status in a header
            assert headers.get("content-type") == "application/grpc"
            assert not body
            continue
        assert "error" in json.loads(body)


def test_the_refusal_is_in_the_words_of_the_house(envoy: Envoy) -> None:
    answer = httpx.get(f"{envoy.url('plain')}{ADMIN}")
    assert answer.status_code == 403
    said = answer.json()["error"]["message"]
    assert "not through here" in said, "Envoy says it, before the edge is asked"
    assert answer.json() == json.loads(OPENAI.envelope(Fault(Reason.LOCAL_ONLY, said), ""))
    assert answer.headers["content-type"].startswith("application/json")


def test_the_edge_refuses_admin_even_where_envoy_would_not(house: House, envoy: Envoy) -> None:
    """What Envoy always adds is what the edge goes by: two walls, each of which holds."""
    direct = httpx.get(f"{house.url}{ADMIN}")
    assert direct.status_code == 200
    forwarded = httpx.get(f"{house.url}{ADMIN}", headers={"x-forwarded-for": "10.0.0.1"})
    assert forwarded.status_code == 403
    assert forwarded.json()["error"]["code"] == "local_only"


TWO_READINGS = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/admin/models HTTP/1.1\r\nHost: x\r\n\r\n"
)


@pytest.mark.parametrize(
    "raw",
    [
        TWO_READINGS,
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"GET /v1/models HTTP/1.0\r\nHost: x\r\n\r\n",
        b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_what_may_be_read_in_two_ways_is_refused(envoy: Envoy, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", envoy.ports["plain"]), timeout=10) as client:
        client.sendall(raw)
        said = b""
        while piece := client.recv(65536):
            said += piece
    status = int(said.split(b" ", 2)[1])
    assert 400 <= status < 500, said
    assert b"tiny" not in said


async def test_the_log_holds_no_word_of_a_client(envoy: Envoy) -> None:
    secret = "s3cr3t-word"
    claims = {"authorization": f"Bearer {secret}", "x-other": secret, "user-agent": secret}
    async with httpx.AsyncClient() as http:
        await http.post(
            f"{envoy.url('plain')}/v1/{secret}?key={secret}",
            headers=claims | {"x-request-id": "the-marked-one"},
            content=secret,
        )

    def told() -> list[dict[str, Any]]:
        return [json.loads(line) for line in envoy.log.splitlines() if line.startswith("{")]

    async def written() -> bool:  # lines are written together, every few seconds
        return any(one["request_id"] == "the-marked-one" for one in told())

    await until(written, 20, "the line")
    assert secret not in envoy.log
    assert {one["route"] for one in told()} <= {"house", "closed", "probes", "-", None}
