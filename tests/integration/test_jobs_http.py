"""Jobs through the whole house by HTTP: handed in, watched over a kill of their service, read."""

import base64
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import yaml
from PIL import Image
from skimage import data

from tests.integration.house import ROOT, House, free_port, started
from tests.tiny_diffusion import make_tiny_diffusion

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

NETWORK = ROOT / "models" / "u2netp.onnx"
DEADLINE_S = 120.0
STEPS = 3


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    port = free_port()
    made = make_tiny_diffusion(tmp_path / "models")
    files = {
        "diffusion_model": str(made.diffusion_model),
        "llm": str(made.llm),
        "taesd": str(made.taesd),
    }
    tiny = {
        "family": "ovis-image",
        "files": files,
        "defaults": {"steps": STEPS, "width_px": 64, "height_px": 64},
    }
    configured = {
        "run_dir": "run",
        "state_dir": "state",
        "broker": {"device": "cpu"},
        "matte": {"models": {"u2netp": {"path": str(NETWORK)}}},
        "diffusion": {"models": {"tiny": tiny}},
        "jobs": {},
        "edge": {"listen": f"127.0.0.1:{port}", "keepalive_s": 0.5},
    }
    path = tmp_path / "cohabit.yaml"
    path.write_text(yaml.safe_dump(configured))
    with started(path, port) as house:
        yield house


@pytest.fixture
async def http(house: House) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=house.url, timeout=DEADLINE_S, trust_env=False) as client:
        yield client


def photograph() -> bytes:
    out = io.BytesIO()
    Image.fromarray(data.coffee()).save(out, "JPEG")
    return out.getvalue()


async def accepted(http: httpx.AsyncClient, path: str, **body: Any) -> Any:
    answer = await http.post(path, **body)
    assert answer.status_code == 202, answer.text
    return answer.json()


async def watched(http: httpx.AsyncClient, job_id: str) -> AsyncIterator[Any]:
    """The job after every change, to its end."""
    async with http.stream("GET", f"/v1/jobs/{job_id}/events") as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def finished(http: httpx.AsyncClient, job_id: str) -> Any:
    told = [job async for job in watched(http, job_id)]
    revisions = [job["revision"] for job in told]
    assert revisions == sorted(set(revisions))
    assert told[-1]["state"] == "succeeded", told[-1]
    return told[-1]


async def test_a_cutout_is_made_and_read(http: httpx.AsyncClient) -> None:
    raw = photograph()
    form = {"return_matte": "true", "output_format": "png"}
    job = await accepted(
        http, "/v1/images/background-removals/jobs", data=form, files={"image": raw}
    )
    done = await finished(http, job["id"])
    assert {one["role"] for one in done["results"]} == {"cutout", "matte"}
    whole = await http.get(f"/v1/jobs/{job['id']}/result")
    assert (whole.status_code, whole.headers["content-type"]) == (200, "image/png")
    with Image.open(io.BytesIO(whole.content)) as cutout:
        assert (cutout.mode, cutout.size) == ("RGBA", (600, 400))
    # In two parts, as a broken transfer comes.
    cutout_url = next(one["url"] for one in done["results"] if one["role"] == "cutout")
    rest = await http.get(cutout_url, headers={"range": "bytes=1000-"})
    assert (rest.status_code, rest.content) == (206, whole.content[1000:])
    again = await http.get(cutout_url, headers={"if-none-match": whole.headers["etag"]})
    assert again.status_code == 304
    # At once it comes out the same.
    at_once = await http.post(
        "/v1/images/background-removals", data={"output_format": "png"}, files={"image": raw}
    )
    assert at_once.content == whole.content


async def test_a_kill_of_the_service_is_not_noticed_by_who_watches(
    house: House, http: httpx.AsyncClient
) -> None:
    body = {"prompt": "a harbour", "n": 3, "seed": 5, "output_format": "png"}
    body |= {"idempotency_key": "harbour"}
    job = await accepted(http, "/v1/images/generations/jobs", json=body)
    killed: psutil.Process | None = None
    told = []
    async for state in watched(http, job["id"]):
        told.append(state)
        if killed is None and any(step["state"] == "done" for step in state["steps"]):
            killed = house.process("services.jobs")
            killed.kill()
    assert killed is not None
    assert not killed.is_running()
    assert told[-1]["state"] == "succeeded"
    assert [one["seed"] for one in told[-1]["results"]] == [5, 6, 7]
    # The same request is the same job still.
    answer = await http.post("/v1/images/generations/jobs", json=body)
    assert (answer.json()["id"], answer.headers["idempotent-replayed"]) == (job["id"], "true")
    other = await http.post("/v1/images/generations/jobs", json=body | {"n": 2})
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")
    # And its pictures are those that are made at once.
    asked = {"prompt": "a harbour", "seed": 6, "output_format": "png", "n": 1}
    at_once = (await http.post("/v1/images/generations", json=asked)).json()
    second = await http.get(told[-1]["results"][1]["url"])
    picture = base64.b64decode(at_once["data"][0]["b64_json"])
    assert np.array_equal(pixels(second.content), pixels(picture))


def pixels(raw: bytes) -> "np.ndarray[Any, Any]":
    with Image.open(io.BytesIO(raw)) as picture:
        return np.asarray(picture.convert("RGB"))


async def test_a_subject_gets_a_backdrop(http: httpx.AsyncClient) -> None:
    body = {
        "prompt": "a deckhand",
        "background_prompt": "a deck",
        "background_strength": 0.5,
        "return_source": True,
        "output_format": "jpeg",
        "output_compression": 90,
    }
    job = await accepted(http, "/v1/images/foreground-generations/jobs", json=body)
    done = await finished(http, job["id"])
    assert [step["kind"] for step in done["steps"]] == [
        "generate",
        "matte",
        "generate_backdrop",
        "composite",
    ]
    roles = {one["role"] for one in done["results"]}
    assert {"image", "source"} <= roles
    answer = await http.get(f"/v1/jobs/{job['id']}/result")
    assert answer.headers["content-type"] == "image/jpeg"
    assert pixels(answer.content).shape == (64, 64, 3)
    told = (await http.get(f"/v1/jobs/{job['id']}")).json()
    assert told["request"]["background_prompt"] == "a deck"
    listed = (await http.get("/v1/jobs", params={"kind": "foreground_generation"})).json()
    assert [one["id"] for one in listed["data"]] == [job["id"]]


async def test_what_waits_is_cancelled_at_once(http: httpx.AsyncClient) -> None:
    body = {"prompt": "a harbour", "n": 20, "steps": 20, "size": "256x256"}
    path = "/v1/images/generations/jobs"
    jobs = [await accepted(http, path, json=body) for _ in range(4)]
    for job in reversed(jobs):
        await http.post(f"/v1/jobs/{job['id']}/cancel")
    for job in jobs:
        async for state in watched(http, job["id"]):
            last = state
        assert last["state"] == "cancelled"
        answer = await http.get(f"/v1/jobs/{job['id']}/result")
        assert answer.status_code == 404
