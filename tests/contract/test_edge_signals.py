"""/metrics, /errors and /status of an edge, over real sockets, whatever its services do."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import httpx
import pytest

from chassis.errors import Fault, Reason
from cohabit.common.v1 import metrics_pb2, metrics_pb2_grpc
from cohabit.llm.v1 import llm_pb2
from edge.signals import gathering
from edge.standing import Standing
from tests.edge_kit import CHAT, House, opened, text
from tests.keys_kit import bearing, secret_of, write_keys
from tests.metrics_kit import values_in

ANSWERS_WITHIN_S = 5.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as house:
        yield house


async def seen(house: House) -> dict[str, float]:
    answer = await house.http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return values_in(answer.text)


def up(values: dict[str, float]) -> dict[str, float]:
    prefix = 'cohabit_up{service="'
    return {key[len(prefix) : -2]: on for key, on in values.items() if key.startswith(prefix)}


async def test_every_service_is_in_it_and_who_is_away_is_named(house: House) -> None:
    values = await seen(house)
    assert up(values) == {"edge": 1, "broker": 1, "scheduler": 1, "llm": 1}
    open_calls = "cohabit_http_open_requests"
    for service in ("edge", "scheduler"):  # one process here: each tells the same
        assert values[f'{open_calls}{{service="{service}"}}'] == 1
    await house.scheduler_server.stop()
    began = time.monotonic()
    values = await seen(house)
    assert time.monotonic() - began < ANSWERS_WITHIN_S
    assert up(values) == {"edge": 1, "broker": 1, "scheduler": 0, "llm": 1}
    assert f'{open_calls}{{service="edge"}}' in values
    assert f'{open_calls}{{service="scheduler"}}' not in values


class Silent(metrics_pb2_grpc.MetricsServiceServicer):
    """Takes the question and never answers."""

    def __init__(self) -> None:
        self.asked = 0

    async def GetMetrics(self, _request: Any, _context: Any) -> metrics_pb2.GetMetricsResponse:
        self.asked += 1
        await asyncio.Event().wait()
        raise AssertionError


async def test_one_that_hangs_is_waited_for_once_however_many_ask(tmp_path: Path) -> None:
    silent, server = Silent(), grpc.aio.server()
    metrics_pb2_grpc.add_MetricsServiceServicer_to_server(silent, server)
    server.add_insecure_port(f"unix:{tmp_path}/silent.sock")
    await server.start()
    addresses = {"llm": f"unix:{tmp_path}/silent.sock", "matte": f"unix:{tmp_path}/none.sock"}
    async with gathering.gathering(addresses, Standing(), "1") as gathered:
        began = time.monotonic()
        texts = await asyncio.gather(*(gathered.text() for _ in range(20)))
        assert time.monotonic() - began < ANSWERS_WITHIN_S
    await server.stop(0)
    assert silent.asked == 1
    assert len(set(texts)) == 1
    assert up(values_in(texts[0])) == {"edge": 1, "llm": 0, "matte": 0}


async def test_what_the_edge_cannot_tell_of_itself_hides_nobody_else(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> str:
        raise RuntimeError("Read beyond file size detected, file is corrupted.")

    monkeypatch.setattr(gathering, "metrics", SimpleNamespace(text=broken))
    assert up(await seen(house)) == {"edge": 0, "broker": 1, "scheduler": 1, "llm": 1}


async def test_who_asked_first_may_leave(house: House) -> None:
    first = asyncio.create_task(house.http.get("/metrics"))
    await asyncio.sleep(0)
    first.cancel()
    assert up(await seen(house))["edge"] == 1


async def test_the_first_token_is_timed_by_the_model_that_served(house: House) -> None:
    count = 'cohabit_time_to_first_token_seconds_count{model="smol-a",service="edge"}'
    before = (await seen(house)).get(count, 0)
    await house.lines({**CHAT, "stream": True})
    await house.lines({**CHAT})
    values = await seen(house)
    assert values[count] == before + 2
    assert not [key for key in values if 'model="smol"' in key], "the name that was asked for"


async def errors(house: House) -> list[dict[str, Any]]:
    told = (await house.http.get("/errors")).json()
    assert told["object"] == "list"
    return list(told["data"])


def breaking(reason: Reason, message: str, *said: str) -> Any:
    async def generate(_request: Any, _context: Any) -> AsyncIterator[llm_pb2.GenerateResponse]:
        for word in said:
            yield text(word)
        raise Fault(reason, message)

    return generate


async def test_failures_are_kept_and_refusals_are_not(house: House) -> None:
    assert await errors(house) == []
    house.peers.generate = breaking(Reason.MODEL_FAILED, "The file is broken; mend it.")
    answer = await house.http.post(
        "/v1/chat/completions?q=secret", json=CHAT, headers={"x-request-id": "r-7"}
    )
    assert answer.status_code == 503
    await house.http.get("/v1/nothing")
    await house.http.post("/v1/chat/completions", content=b"{")
    (kept,) = await errors(house)
    assert kept.pop("at").endswith("Z")
    assert kept == {
        "request_id": "r-7",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 503,
        "reason": "model_failed",
        "message": "The file is broken; mend it.",
    }
    status = (await house.http.get("/status")).json()["edge"]
    assert [one["request_id"] for one in status["failures"]] == ["r-7"]


async def test_a_stream_that_fails_after_its_headers_is_a_failure_too(house: House) -> None:
    house.peers.generate = breaking(Reason.MODEL_FAILED, "Broken.", "Hel")
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "stream": True})
    assert answer.status_code == 200
    (kept,) = await errors(house)
    assert (kept["status"], kept["reason"]) == (503, "model_failed")


async def test_what_may_quote_the_client_is_left_out(house: House) -> None:
    house.peers.generate = breaking(Reason.NOT_IMPLEMENTED, "Requests like `secret` are not.")
    assert (await house.http.post("/v1/chat/completions", json=CHAT)).status_code == 501
    (kept,) = await errors(house)
    assert (kept["reason"], kept["message"]) == ("not_implemented", "")


async def test_the_newest_32_and_no_probe_among_them(house: House) -> None:
    house.peers.generate = breaking(Reason.MODEL_FAILED, "Broken.")
    for number in range(40):
        await house.http.post(
            "/v1/chat/completions", json=CHAT, headers={"x-request-id": f"r{number}"}
        )
    await house.scheduler_server.stop()
    assert (await house.http.get("/readyz")).status_code == 503
    ids = [one["request_id"] for one in await errors(house)]
    assert ids == [f"r{number}" for number in range(39, 7, -1)]


async def test_status_says_how_the_edge_stands(house: House) -> None:
    told = (await house.http.get("/status")).json()
    assert told["version"]
    assert told["edge"] | {"uptime_s": 0} == {
        "uptime_s": 0, "draining": False, "workers": 1, "workers_up": 1, "failures": []
    }  # fmt: skip


async def test_lines_go_to_the_file_that_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "log" / "access.log"
    async with opened(tmp_path, access_log_file=path) as house:
        with caplog.at_level(logging.DEBUG):
            await house.http.get("/v1/models/lost?key=secret", headers={"x-request-id": "r-1"})
            await house.http.get("/health")
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["request_id"], line["route"]) == ("r-1", "/v1/models/{name:path}")
    assert (line["method"], line["status"], line["outcome"]) == ("GET", 404, "model_not_found")
    assert "secret" not in path.read_text()


async def test_a_line_names_the_key_and_does_not_hold_it(tmp_path: Path) -> None:
    path, file = tmp_path / "access.log", write_keys(tmp_path / "keys.yaml", alice={})
    async with opened(tmp_path, access_log_file=path, keys_file=file) as house:
        await house.http.get("/v1/models", headers=bearing("alice"))
        await house.http.get("/v1/models", headers={"authorization": "Bearer ch-nobody"})
    known, refused = map(json.loads, path.read_text().splitlines())
    assert (known["status"], known["key"]) == (200, "alice")
    assert (refused["status"], "key" in refused) == (401, False)
    assert secret_of("alice") not in path.read_text()


async def test_a_method_of_ones_own_is_no_word_of_the_log(house: House, tmp_path: Path) -> None:
    async with httpx.AsyncClient(base_url=house.url, trust_env=False) as http:
        for method in ("SECRET", "PROPFIND"):
            answer = await http.request(method, "/v1/models")
            assert answer.status_code in {400, 405}
    assert not [key for key in await seen(house) if "SECRET" in key or "PROPFIND" in key]
