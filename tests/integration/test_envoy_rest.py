"""The insides through a real Envoy: as REST, as grpc-web from a page, and as gRPC."""

import base64
import io
import json
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.protobuf.message import Message
from PIL import Image

from chassis.channel import open_channel
from chassis.status import fault_of
from cohabit.jobs.v1 import jobs_pb2
from cohabit.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from tests.envoy_kit import Envoy, fronting, running_envoy
from tests.integration.house import ROOT, House, running, until

HERE, ELSEWHERE = "http://localhost:5173", "https://elsewhere.example"
STATUS = "/cohabit.scheduler.v1.SchedulerService/GetStatus"
NETWORK = ROOT / "models" / "u2netp.onnx"
WATCH = "/cohabit.scheduler.v1.SchedulerService/WatchStatus"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    cutter: dict[str, object] = {"models": {"u2netp": {"path": str(NETWORK), "threads": 1}}}
    with running(tmp_path_factory.mktemp("h"), matte=cutter, jobs={}) as house:
        yield house


@pytest.fixture(scope="module")
def envoy(house: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envoy]:
    with fronting(house, tmp_path_factory.mktemp("e")) as envoy:
        yield envoy


@pytest.fixture
async def rest(envoy: Envoy) -> AsyncIterator[httpx.AsyncClient]:
    base = f"{envoy.url('insides')}/rest/v1"
    async with httpx.AsyncClient(base_url=base, timeout=30, trust_env=False) as client:
        yield client


async def test_the_broker_is_rest(rest: httpx.AsyncClient) -> None:
    device = (await rest.get("/devices")).json()["devices"][0]
    assert device["kind"] == "DEVICE_KIND_CPU"
    assert int(device["total_mib"]) > 0
    assert int((await rest.get("/host")).json()["total_mib"]) > 0
    asked = {
        "holder": "outside/blender",
        "kind": "LEASE_KIND_RESIDENT",
        "tier": "TIER_PAID",
        "preferred_mib": 16,
    }
    lease = (await rest.post("/leases", json=asked)).json()["lease"]
    renewed = await rest.post(f"/leases/{lease['lease_id']}:renew", json={"materialised_mib": 8})
    assert int(renewed.json()["lease"]["materialised_mib"]) == 8
    listed = (await rest.get("/leases", params={"holder_prefix": "outside/"})).json()["leases"]
    assert [one["lease_id"] for one in listed] == [lease["lease_id"]]
    assert (await rest.delete(f"/leases/{lease['lease_id']}")).json() == {}
    assert (await rest.get("/leases", params={"holder_prefix": "outside/"})).json()["leases"] == []


async def test_the_scheduler_is_rest(rest: httpx.AsyncClient) -> None:
    assert (await rest.get("/status")).json()["status"]["permits_total"] == 4
    models = {one["key"] for one in (await rest.get("/models")).json()["models"]}
    assert models == {"tiny", "smollm2", "u2netp"}
    plan = (await rest.get("/models/tiny:plan", params={"tier": "TIER_PAID"})).json()
    assert plan["feasible"] is True
    loaded = await rest.post("/models/tiny:load", json={"tier": "TIER_PAID"})
    events = [json.loads(line) for line in loaded.text.splitlines()]
    assert events[-1]["state"] == "MODEL_STATE_READY"
    assert (await rest.post("/models/tiny:unload", json={})).json() == {}


def picture() -> str:
    """As JSON has bytes."""
    out = io.BytesIO()
    Image.new("RGB", (64, 48), "teal").save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


async def test_a_job_is_rest_from_its_submission_to_its_result(rest: httpx.AsyncClient) -> None:
    work = {"image": {"data": picture(), "mime_type": "image/png"}}
    asked = {"spec": {"background_removal": work}, "idempotency_key": "once"}
    job = (await rest.post("/jobs", json=asked)).json()["job"]
    events = []
    async with rest.stream("GET", f"/jobs/{job['job_id']}:watch") as stream:
        events = [json.loads(line)["job"] async for line in stream.aiter_lines()]
    assert events[-1]["state"] == "JOB_STATE_SUCCEEDED"
    (result,) = (await rest.get(f"/jobs/{job['job_id']}")).json()["job"]["results"]
    read = await rest.get(f"/jobs/{job['job_id']}/results/{result['result_id']}:read")
    pieces = [base64.b64decode(json.loads(line)["data"]) for line in read.text.splitlines()]
    assert Image.open(io.BytesIO(b"".join(pieces))).size == (64, 48)
    ended = await rest.post(f"/jobs/{job['job_id']}:cancel", json={})
    assert ended.json()["job"]["state"] == "JOB_STATE_SUCCEEDED"
    assert len((await rest.get("/jobs", params={"page_size": 3})).json()["jobs"]) == 1


async def test_a_job_that_is_not_there_is_said_so(rest: httpx.AsyncClient) -> None:
    missing = await rest.get("/jobs/none-such")
    assert missing.status_code == 404
    assert missing.json()["details"][0]["reason"] == "job_not_found"
    assert missing.json()["details"][0]["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (await rest.get("/jobs/none-such:watch")).status_code == 404


async def test_a_stream_is_a_line_an_event_as_it_comes(rest: httpx.AsyncClient) -> None:
    async with rest.stream("POST", "/lanes/chat/holds", json={"hold_s": 30, "holder": "me"}) as one:
        lines = one.aiter_lines()
        assert json.loads(await anext(lines))["held"] is True
        status = (await rest.get("/status")).json()["status"]
        assert [hold["holder"] for hold in status["holds"]] == ["me"], "the stream is still open"
        assert (await rest.delete("/lanes/chat/holds/me")).json() == {}
        assert [line async for line in lines if json.loads(line)["held"]] == []


async def test_an_admission_by_rest_ends_with_its_stream(
    house: House, rest: httpx.AsyncClient
) -> None:
    asked = {"model": "tiny", "tier": "TIER_PAID", "request_id": "by-rest"}
    async with rest.stream("POST", "/admissions", json=asked) as stream:
        async for line in stream.aiter_lines():
            if "granted" in json.loads(line):
                break
        assert (await house.status()).permits_in_use == 1

    async def free() -> bool:
        return (await house.status()).permits_in_use == 0

    await until(free, 5, "the permit is free")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("GET", "/leases?no_such_field=1", None, 400),
        ("POST", "/leases", {"no_such_field": 1}, 400),
        ("POST", "/leases", {"preferred_mib": "many"}, 400),
        ("POST", "/models/none-such:load", {}, 404),
        ("PUT", "/leases", {}, 404),
    ],
)
async def test_what_is_wrong_is_said_as_a_status(
    rest: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None, status: int
) -> None:
    answer = await rest.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    told = json.loads(answer.text.splitlines()[0])
    assert told["code"] > 0
    assert told["message"]


async def test_a_service_that_is_away_is_said_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("e")
    nobody = dict.fromkeys(("scheduler", "broker", "jobs"), f"unix:{folder}/none.sock")
    with running_envoy(folder, ["127.0.0.1:1"], nobody) as envoy:
        async with httpx.AsyncClient() as http:
            status = await http.get(f"{envoy.url('insides')}/rest/v1/status")
            models = await http.get(f"{envoy.url('plain')}/v1/models")
            alive = await http.get(f"{envoy.url('plain')}/envoy/live")
    assert (status.status_code, status.json()["code"]) == (
        503,
        grpc.StatusCode.UNAVAILABLE.value[0],
    )
    assert models.status_code == 503
    assert models.json()["error"]["code"] == "service_unavailable"
    assert models.headers["retry-after"] == "1"
    assert alive.status_code == 200


def frame(message: Message) -> bytes:
    raw = message.SerializeToString()
    return struct.pack(">BI", 0, len(raw)) + raw


def frames(body: bytes) -> Iterator[tuple[bool, bytes]]:
    """Of a grpc-web answer: whether it is the trailers, and what it holds."""
    while body:
        kind, size = struct.unpack(">BI", body[:5])
        yield kind == 0x80, body[5 : 5 + size]
        body = body[5 + size :]


@pytest.mark.parametrize("text", [False, True])
async def test_a_page_calls_by_grpc_web(envoy: Envoy, *, text: bool) -> None:
    kind = "application/grpc-web-text" if text else "application/grpc-web+proto"
    sent = frame(scheduler_pb2.GetStatusRequest())
    async with httpx.AsyncClient(base_url=envoy.url("insides")) as http:
        answer = await http.post(
            STATUS,
            content=base64.b64encode(sent) if text else sent,
            headers={"content-type": kind, "x-grpc-web": "1", "origin": HERE, "accept": kind},
        )
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == HERE
    # Text is base64 of pieces, each padded by itself.
    pieces = (answer.content[at : at + 4] for at in range(0, len(answer.content), 4))
    body = b"".join(map(base64.b64decode, pieces)) if text else answer.content
    (trailing, data), (last, trailers) = frames(body)
    assert not trailing
    assert last
    assert b"grpc-status:0" in trailers
    assert scheduler_pb2.GetStatusResponse.FromString(data).status.permits_total == 4


async def test_a_page_watches_by_grpc_web(envoy: Envoy) -> None:
    headers = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1", "origin": HERE}
    sent = frame(scheduler_pb2.WatchStatusRequest())
    async with (
        httpx.AsyncClient(base_url=envoy.url("insides")) as http,
        http.stream("POST", WATCH, content=sent, headers=headers) as answer,
    ):
        first = await anext(answer.aiter_raw())
        (_, data), *_ = frames(first)
    assert scheduler_pb2.WatchStatusResponse.FromString(data).status.permits_total == 4


async def test_a_refusal_reaches_the_page(envoy: Envoy) -> None:
    headers = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1", "origin": HERE}
    sent = frame(jobs_pb2.GetJobRequest(job_id="none-such"))
    async with httpx.AsyncClient(base_url=envoy.url("insides")) as http:
        answer = await http.post(
            "/cohabit.jobs.v1.JobService/GetJob", content=sent, headers=headers
        )
    told = answer.headers.get("grpc-status") or answer.content.decode("latin-1")
    assert "5" in told
    assert "grpc-status" in answer.headers["access-control-expose-headers"]


async def test_browsers_ask_first_and_are_answered_by_origin(envoy: Envoy) -> None:
    asked = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,x-grpc-web",
    }
    async with httpx.AsyncClient(base_url=envoy.url("insides")) as http:
        ours = await http.options(STATUS, headers=asked | {"origin": HERE})
        assert ours.status_code == 200
        assert ours.headers["access-control-allow-origin"] == HERE
        assert "x-grpc-web" in ours.headers["access-control-allow-headers"]
        other = await http.options(STATUS, headers=asked | {"origin": ELSEWHERE})
        assert other.status_code == 403
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("origin", [ELSEWHERE, "null", "http://localhost.evil.example", ""])
async def test_pages_from_elsewhere_change_nothing(
    house: House, rest: httpx.AsyncClient, origin: str
) -> None:
    """A page may send a plain POST without asking; its answer it cannot read, but it was served."""
    asked = {"holder": "evil", "kind": "LEASE_KIND_RESIDENT", "tier": "TIER_PAID"}
    body = json.dumps(asked | {"preferred_mib": 16})
    headers = {"origin": origin, "content-type": "text/plain"}
    answer = await rest.post("/leases", content=body, headers=headers)
    assert answer.status_code == 403
    assert [lease.holder for lease in await house.leases() if lease.holder == "evil"] == []


async def test_a_name_that_was_pointed_here_gets_nothing(envoy: Envoy) -> None:
    async with httpx.AsyncClient(base_url=envoy.url("insides")) as http:
        answer = await http.get("/rest/v1/leases", headers={"host": "rebound.example:8001"})
    assert answer.status_code == 404
    assert "leases" not in answer.json()


async def test_grpc_passes_and_only_what_is_meant(envoy: Envoy) -> None:
    async with open_channel(envoy.url("insides").removeprefix("http://")) as channel:
        stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        answer = await stub.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=10)
        assert answer.status.permits_total == 4
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.UnloadModel(scheduler_pb2.UnloadModelRequest(model="none"), timeout=10)
        assert fault_of(refused.value, "scheduler").reason == "model_not_found"
        other: Any = channel.unary_unary("/cohabit.models.v1.ModelService/ListModels")
        with pytest.raises(grpc.aio.AioRpcError) as closed:
            await other(b"", timeout=10)
        assert closed.value.code() is grpc.StatusCode.UNIMPLEMENTED
