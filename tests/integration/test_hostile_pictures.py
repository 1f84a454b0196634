"""Five hundred broken, odd and hostile pictures through the whole house, by every way in.

Each is answered: with a picture, or with a 4xx and a sentence. No process ends of one, none keeps
memory for one, and nothing is left of the requests.
"""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest

from tests.hostile_pictures import COUNT, Case, Verdict, all_cases
from tests.integration.fuzz_house import rests
from tests.integration.house import House, running
from tests.integration.picture_house import picture_sections
from tests.picture_forge import pattern, saved

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

AT_ONCE = 4
DEADLINE_S = 60.0
SAMPLE = 60 if os.environ.get("COHABIT_DEEP") else 24
GROWTH_MIB = 256
"""What allocators may keep of pictures that are gone; one that leaked would keep gigabytes."""
GOOD = saved(pattern(), "PNG")
REFUSALS = {"invalid_image", "image_too_large"}
_ENDED = {"succeeded", "failed", "cancelled"}

Way = Callable[[httpx.AsyncClient, Case], Awaitable[httpx.Response]]
"""How a picture comes in."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("h")
    (folder / "models").mkdir()
    sections = picture_sections(folder / "models")
    with running(folder, **sections, edge={"fetch_allow_hosts": ["127.0.0.1"]}) as house:
        asyncio.run(_warm(house))
        yield house


@pytest.fixture
async def http(house: House) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=house.url, timeout=DEADLINE_S, trust_env=False) as client:
        yield client


async def test_all_are_cut_out_or_refused(house: House, http: httpx.AsyncClient) -> None:
    cases = all_cases()
    assert len(cases) == COUNT
    with unharmed(house):
        answered = await _all(cases[::5], partial(_answered, http, _removal))
        before_mib = _held_mib(house)
        answered += await _all(cases, partial(_answered, http, _removal))
        grown = {pid: mib - before_mib[pid] for pid, mib in _held_mib(house).items()}
    assert max(grown.values()) < GROWTH_MIB, grown
    await rests(house)
    assert answered.count(200) > COUNT // 3


@pytest.mark.parametrize("way", ["backdrop", "edit", "mask", "reference", "upload", "url"])
async def test_a_sample_by_another_way(house: House, http: httpx.AsyncClient, way: str) -> None:
    sample = _sample()
    with unharmed(house), _served(sample) as origin:
        ways: dict[str, Way] = {
            "backdrop": _backdrop,
            "edit": _edit,
            "mask": _mask,
            "reference": _reference,
            "upload": _upload,
            "url": partial(_url, origin),
        }
        answered = await _all(sample, partial(_answered, http, ways[way]))
    await rests(house)
    assert set(answered) == {200, 400}


@pytest.mark.parametrize("route", ["background-removals", "generations"])
async def test_a_sample_as_input_of_jobs(house: House, http: httpx.AsyncClient, route: str) -> None:
    with unharmed(house):
        ended = await _all(_sample(), partial(_job, http, route))
    await rests(house)
    assert set(ended) <= {"refused", "succeeded", "failed"}
    open_jobs = await http.get("/v1/jobs", params={"state": "queued,running"})
    assert open_jobs.json()["data"] == []


def _sample() -> list[Case]:
    cases = all_cases()
    return cases[:: -(-len(cases) // SAMPLE)]


async def _warm(house: House) -> None:
    """What is loaded and compiled once is no matter of the pictures."""
    case = Case("good", GOOD, Verdict.ODD)
    async with httpx.AsyncClient(base_url=house.url, timeout=240, trust_env=False) as http:
        for way in (_removal, _backdrop, _edit):
            assert await _answered(http, way, case) == 200


async def _all(cases: Sequence[Case], send: Callable[[Case], Awaitable[Any]]) -> list[Any]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> Any:
        async with places:
            return await send(case)

    return await asyncio.gather(*map(one, cases))


async def _answered(http: httpx.AsyncClient, way: Way, case: Case) -> int:
    """The status. Fails unless it is what must come of the file."""
    answer = await way(http, case)
    said = f"{case.name}: {answer.status_code} {answer.text[:300]}"
    if answer.status_code != 200:
        _check_refusal(answer, said)
    if case.verdict is not Verdict.EITHER:
        assert (answer.status_code == 200) is (case.verdict is Verdict.ODD), said
    return answer.status_code


def _check_refusal(answer: httpx.Response, said: str) -> None:
    assert answer.status_code == 400, said
    error = answer.json()["error"]
    assert error["code"] in REFUSALS, said
    assert error["param"], said
    assert error["message"].endswith("."), said


async def _job(http: httpx.AsyncClient, route: str, case: Case) -> str:
    """Its last state, or "refused". Fails unless it ended as it must."""
    fields = {} if route == "background-removals" else {"prompt": "x", "size": "64x64"}
    sent = await http.post(f"/v1/images/{route}/jobs", files={"image": case.data}, data=fields)
    if sent.status_code != 202:
        assert case.verdict is not Verdict.ODD, sent.text
        _check_refusal(sent, f"{case.name}: {sent.text[:300]}")
        return "refused"
    job = await _ended(http, sent.json()["id"])
    if job["state"] == "failed":
        assert job["error"]["code"] in REFUSALS, f"{case.name}: {job['error']}"
    if case.verdict is not Verdict.EITHER:
        assert (job["state"] == "succeeded") is (case.verdict is Verdict.ODD), case.name
    return str(job["state"])


async def _ended(http: httpx.AsyncClient, job_id: str) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        await http.get(f"/v1/jobs/{job_id}/events")  # it ends with the job
    job = (await http.get(f"/v1/jobs/{job_id}")).json()
    assert job["state"] in _ENDED
    return job


async def _removal(http: httpx.AsyncClient, case: Case) -> httpx.Response:
    return await http.post("/v1/images/background-removals", files={"image": case.data})


async def _backdrop(http: httpx.AsyncClient, case: Case) -> httpx.Response:
    files = {"image": GOOD, "background_image": case.data}
    return await http.post("/v1/images/background-removals", files=files)


async def _edit(http: httpx.AsyncClient, case: Case) -> httpx.Response:
    return await _in_json(http, "edits", image=_coded(case.data), strength=0.5)


async def _mask(http: httpx.AsyncClient, case: Case) -> httpx.Response:
    return await _in_json(http, "edits", image=_coded(GOOD), mask=_coded(case.data))


async def _reference(http: httpx.AsyncClient, case: Case) -> httpx.Response:
    return await _in_json(http, "generations", reference_images=[_coded(case.data)])


async def _upload(http: httpx.AsyncClient, case: Case) -> httpx.Response:
    files = {"image": case.data}
    data = {"prompt": "x", "strength": "0.5", "size": "64x64"}
    return await http.post("/v1/images/edits", files=files, data=data)


async def _url(origin: str, http: httpx.AsyncClient, case: Case) -> httpx.Response:
    return await _in_json(http, "edits", image=f"{origin}/{case.name}", strength=0.5)


async def _in_json(http: httpx.AsyncClient, route: str, **fields: Any) -> httpx.Response:
    body = {"prompt": "x", "size": "64x64", **fields}
    return await http.post(f"/v1/images/{route}", json=body)


def _coded(data: bytes) -> str:
    """As a data URL: an empty text would be no picture at all."""
    return "data:image/png;base64," + base64.b64encode(data).decode()


@contextmanager
def unharmed(house: House) -> Iterator[None]:
    """Fails when a process ended meanwhile: one that was brought up again has another id."""
    before = {process.pid for process in house.processes()}
    yield
    ended = before - {process.pid for process in house.processes()}
    assert not ended, house.log.read_text()[-4000:]


def _held_mib(house: House) -> dict[int, int]:
    return {process.pid: process.memory_info().rss >> 20 for process in house.processes()}


@contextmanager
def _served(cases: Sequence[Case]) -> Iterator[str]:
    """The files behind URLs: `/` and the name. Where they are."""
    files = {f"/{case.name}": case.data for case in cases}

    class Files(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = files[self.path]
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Not into the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
