"""Jobs over real HTTP: listed, looked at, cancelled; what the house tells of the service."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from cohabit.common.v1 import common_pb2
from cohabit.jobs.v1 import jobs_pb2 as pb
from tests.cutout_kit import (
    NETWORK,
    PAINTER,
    RUNNING,
    SUCCEEDED,
    WEBP,
    PicturePeers,
    job,
    peers_of,
    pictures,
    result,
)
from tests.edge_kit import House, opened

IMAGES = "/v1/images/generations/jobs"
FOREGROUNDS = "/v1/images/foreground-generations/jobs"
REMOVALS = "/v1/images/background-removals/jobs"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with pictures(tmp_path) as house:
        yield house


def error_of(answer: httpx.Response) -> Any:
    return answer.json()["error"]


# Looking.


async def test_a_job_is_told_whole(house: House) -> None:
    failure = common_pb2.Failure(
        reason="engine_crashed", message="It stopped.", retry_at_unix_ms=5_500
    )
    step = pb.Step(
        kind=pb.STEP_KIND_GENERATE,
        state=pb.STEP_STATE_DONE,
        progress=1,
        model_key=PAINTER,
        attempts=2,
        failure=failure,
        started_unix_ms=1_999,
    )
    made = result("r1", WEBP, seed=7)
    spec = pb.JobSpec(
        foreground_generation=pb.ForegroundGeneration(
            picture=pb.Picture(model=PAINTER, prompt="a deckhand", seed=7),
            cutout=pb.CutoutOptions(model=NETWORK, color="white"),
        )
    )
    peers_of(house).jobs["j1"] = job(
        kind=pb.JOB_KIND_FOREGROUND_GENERATION,
        state=SUCCEEDED,
        revision=9,
        progress=1,
        steps=[step],
        results=[made],
        spec=spec,
        expires_unix_ms=9_000,
    )
    told = (await house.http.get("/v1/jobs/j1")).json()
    assert told["steps"] == [
        {
            "kind": "generate",
            "state": "done",
            "progress": 1.0,
            "index": 0,
            "model": PAINTER,
            "attempts": 2,
            "error": {"code": "engine_crashed", "message": "It stopped.", "retry_at": 5},
            "started_at": 1,
            "ended_at": None,
        }
    ]
    assert told["results"] == [
        {
            "id": "r1",
            "role": "cutout",
            "index": 0,
            "mime_type": "image/webp",
            "size_bytes": len(WEBP),
            "sha256": bytes(range(32)).hex(),
            "width": 2,
            "height": 2,
            "seed": 7,
            "url": "/v1/jobs/j1/results/r1",
            "published_url": None,
            "expired": False,
        }
    ]
    assert told["request"] == {
        "model": PAINTER,
        "prompt": "a deckhand",
        "seed": 7,
        "matte_model": NETWORK,
        "background": "white",
    }
    assert (told["position"], told["expires_at"], told["error"]) == (None, 9, None)


async def test_a_failed_job_says_why(house: House) -> None:
    failure = common_pb2.Failure(reason="model_failed", message="No such file.")
    peers_of(house).jobs["j1"] = job(state=pb.JOB_STATE_FAILED, failure=failure)
    told = (await house.http.get("/v1/jobs/j1")).json()
    assert told["error"] == {"code": "model_failed", "message": "No such file.", "retry_at": None}
    answer = await house.http.get("/v1/jobs/j1/result")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "result_not_found")
    assert "No such file." in error_of(answer)["message"]


async def test_jobs_are_listed_in_pages(house: House) -> None:
    peers_of(house).jobs = {"j2": job("j2", state=RUNNING), "j1": job()}
    answer = await house.http.get(
        "/v1/jobs",
        params={"limit": 2, "state": "queued,running", "kind": "image_generation"},
    )
    told = answer.json()
    assert [one["id"] for one in told["data"]] == ["j2", "j1"]
    assert (told["object"], told["next_page_token"]) == ("list", "more")
    (sent,) = peers_of(house).lists
    assert (sent.page_size, list(sent.kinds)) == (2, [pb.JOB_KIND_IMAGE_GENERATION])
    assert list(sent.states) == [pb.JOB_STATE_QUEUED, RUNNING]
    last = (await house.http.get("/v1/jobs", params={"page_token": "more"})).json()
    assert last["next_page_token"] is None
    assert peers_of(house).lists[-1].page_token == "more"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "٣"),
        ("limit", "1" * 5000),
        ("state", "done"),
        ("kind", "video"),
    ],
)
async def test_a_bad_filter_is_refused_by_name(house: House, name: str, value: str) -> None:
    answer = await house.http.get("/v1/jobs", params={name: value})
    assert (answer.status_code, error_of(answer)["param"]) == (400, name)
    assert peers_of(house).lists == []


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/jobs/j1/cancel"), ("DELETE", "/v1/jobs/j1")]
)
async def test_a_job_is_cancelled(house: House, method: str, path: str) -> None:
    peers_of(house).jobs["j1"] = job()
    answer = await house.http.request(method, path)
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/nobody"),
        ("DELETE", "/v1/jobs/nobody"),
        ("POST", "/v1/jobs/nobody/cancel"),
        ("GET", "/v1/jobs/nobody/events"),
        ("GET", "/v1/jobs/nobody/result"),
        ("GET", "/v1/jobs/nobody/results/r1"),
    ],
)
async def test_a_job_that_is_not_there(house: House, method: str, path: str) -> None:
    answer = await house.http.request(method, path)
    assert (answer.status_code, error_of(answer)["code"]) == (404, "job_not_found")


async def test_without_its_service_a_job_is_503(house: House) -> None:
    await house.engine_server.stop()
    for answer in (
        await house.http.get("/v1/jobs/j1"),
        await house.http.get("/v1/jobs"),
        await house.http.get("/v1/jobs/j1/events"),
        await house.http.post(IMAGES, json={"prompt": "x"}),
    ):
        assert (answer.status_code, error_of(answer)["code"]) == (503, "service_unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_a_house_without_jobs_has_no_such_routes(tmp_path: Path) -> None:
    async with opened(tmp_path, ("llm", "matte"), PicturePeers) as house:
        document = (await house.http.get("/openapi.json")).json()
        assert not any("job" in path for path in document["paths"])
        assert not any("Job" in name for name in document["components"]["schemas"])
        for method, path in (("POST", REMOVALS), ("GET", "/v1/jobs")):
            answer = await house.http.request(method, path)
            assert (answer.status_code, error_of(answer)["code"]) == (404, "route_not_found")


async def test_the_routes_are_described(house: House) -> None:
    document = (await house.http.get("/openapi.json")).json()
    paths = document["paths"]
    for path in (IMAGES, FOREGROUNDS, REMOVALS):
        operation = paths[path]["post"]
        assert {"202", "400", "409", "413", "429", "507"} <= set(operation["responses"])
        assert "200" not in operation["responses"]
        names = {one["name"] for one in operation["parameters"]}
        assert "idempotency-key" in names
    looks = [path for path in paths if path.startswith("/v1/jobs")]
    assert sorted(looks) == [
        "/v1/jobs",
        "/v1/jobs/{job_id}",
        "/v1/jobs/{job_id}/cancel",
        "/v1/jobs/{job_id}/events",
        "/v1/jobs/{job_id}/result",
        "/v1/jobs/{job_id}/results/{result_id}",
    ]
    assert {"JobView", "JobPage", "JobStep"} <= set(document["components"]["schemas"])


async def test_the_official_client_raises_its_own_errors(house: House) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        await house.openai.get("/jobs/nobody", cast_to=httpx.Response)
    assert raised.value.code == "job_not_found"


# What the house says of it.


async def test_status_tells_whether_the_job_service_answers(house: House) -> None:
    assert (await house.http.get("/status")).json()["services"]["jobs"] == "ok"
    await house.engine_server.stop()
    told = (await house.http.get("/status")).json()
    assert (told["services"]["jobs"], told["status"]) == ("unreachable", "degraded")
    assert any("jobs" in reason for reason in told["reasons"])
