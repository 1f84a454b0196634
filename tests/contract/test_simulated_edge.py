"""What the edge offers beside OpenAI's own: pretended runs, families of twins, fairness keys."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from chassis.channel import PERMIT_ID
from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from cohabit.models.v1 import models_pb2
from tests.edge_kit import CHAT, DEADLINE_S, MODEL, House, opened

RUNS = "/v1/simulated/runs"
RUN: Any = {"model": MODEL, "work_ms": 30}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path, ("llm", "simulated")) as house:
        house.peers.models += [
            twin("twin-full", 262_144, 1),
            twin("twin-lite", 8_192, 2),
            models_pb2.Model(key="flux", kind=models_pb2.MODEL_KIND_DIFFUSION, service="simulated"),
        ]
        yield house


def twin(key: str, context_tokens: int, created_s: int) -> models_pb2.Model:
    return models_pb2.Model(
        key=key,
        family="twin",
        kind=models_pb2.MODEL_KIND_LANGUAGE,
        capabilities=models_pb2.Capabilities(context_tokens=context_tokens),
        created_unix_ms=1000 * created_s,
        owner="qwen",
        service="llm",
    )


# Runs.


async def test_a_run_is_admitted_and_pretended(house: House) -> None:
    headers = {"x-cohabit-tier": "sub", "x-cohabit-key": "ann"}
    answer = await house.http.post(RUNS, json=RUN, headers=headers)
    assert answer.status_code == 200
    assert answer.json() == {
        "model": "smol-a",
        "ran_ms": 20,
        "queue_wait_ms": 7,
        "transient_mib": 90,
    }
    (admit,), (run,) = house.peers.admits, house.peers.runs
    assert (admit.model, admit.tier, admit.fairness_key) == (MODEL, common_pb2.TIER_SUB, "ann")
    assert (run.model, run.work_ms) == ("smol-a", 30)
    assert (run.transient_lease_id, run.transient_mib) == ("l1", 90)


async def test_a_run_takes_its_model_s_own_time_unless_told(house: House) -> None:
    assert (await house.http.post(RUNS, json={"model": MODEL})).status_code == 200
    assert house.peers.runs[0].work_ms == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"work_ms": 1}, "model"),
        ({"model": ""}, "model"),
        ({**RUN, "work_ms": 0}, "work_ms"),
        ({**RUN, "work_ms": 3_600_001}, "work_ms"),
        ({**RUN, "wrok_ms": 1}, "wrok_ms"),
        ({"model": "twin-lite"}, "model"),
    ],
)
async def test_a_run_that_is_wrong_names_the_field(house: House, body: Any, param: str) -> None:
    answer = await house.http.post(RUNS, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert not house.peers.admits


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Fault(Reason.MODEL_NOT_FOUND, "No such."), 404, "model_not_found"),
        (Fault(Reason.NO_HEADROOM, "Full.", retry_after_s=1.0), 503, "no_headroom"),
    ],
)
async def test_what_the_scheduler_refuses(
    house: House, fault: Fault, status: int, code: str
) -> None:
    async def refuses(_request: Any, _context: Any) -> AsyncIterator[Any]:
        raise fault
        yield

    house.peers.admit = refuses
    answer = await house.http.post(RUNS, json=RUN)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert ("retry-after" in answer.headers) == (status == 503)


async def test_an_engine_that_ends_without_a_word_has_crashed(house: House) -> None:
    async def nothing(_request: Any, _context: Any) -> AsyncIterator[Any]:
        for _ in ():
            yield

    house.peers.run = nothing
    answer = await house.http.post(RUNS, json=RUN)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_crashed")


async def test_a_client_that_leaves_ends_its_run(house: House) -> None:
    house.peers.run = house.peers.hangs
    body = json.dumps(RUN).encode()
    _, writer = await asyncio.open_connection(*house.url.removeprefix("http://").split(":"))
    head = f"POST {RUNS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await house.peers.seen("run")
    writer.transport.abort()
    await house.peers.seen("run over")
    await house.peers.seen("admit over")
    assert house.peers.happened[:2] == ["admit", "run"]


async def test_runs_are_offered_where_models_are_simulated(house: House, tmp_path: Path) -> None:
    document = (await house.http.get("/openapi.json")).json()
    assert "RunAnswer" in json.dumps(document["paths"][RUNS])
    assert document["components"]["schemas"]["RunBody"]["required"] == ["model"]
    assert "simulated" in [tag["name"] for tag in document["tags"]]
    (tmp_path / "plain").mkdir()
    async with opened(tmp_path / "plain") as plain:
        answer = await plain.http.post(RUNS, json=RUN)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")
        document = (await plain.http.get("/openapi.json")).json()
        assert RUNS not in document["paths"]
        assert "RunBody" not in document["components"]["schemas"]


# Families.


@pytest.mark.parametrize("stream", [False, True])
async def test_the_prompt_of_a_family_is_counted_and_the_answer_names_who_served(
    house: House, stream: bool
) -> None:
    body = {**CHAT, "model": "twin", "stream": stream, "max_tokens": 9}
    answer = await house.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200
    assert '"model":"smol-a"' in answer.text
    assert '"model":"twin"' not in answer.text
    (count,), (admit,) = house.peers.counts, house.peers.admits
    assert count.model == "twin-full"
    assert count.conversation.messages[0].content[0].text == "Hello"
    assert (admit.model, admit.prompt_tokens, admit.max_output_tokens) == ("twin", 42, 9)


@pytest.mark.parametrize("model", ["twin-lite", MODEL, "unknown"])
async def test_where_there_is_no_choice_nothing_is_counted(house: House, model: str) -> None:
    await house.http.post("/v1/chat/completions", json={**CHAT, "model": model})
    assert not house.peers.counts
    assert house.peers.admits[0].prompt_tokens == 0


async def test_families_are_listed_as_models(house: House) -> None:
    models = (await house.http.get("/v1/models")).json()["data"]
    assert [model["id"] for model in models] == ["flux", MODEL, "twin", "twin-full", "twin-lite"]
    assert models[2] == {"id": "twin", "created": 2, "owned_by": "qwen", "object": "model"}
    assert (await house.http.get("/v1/models/twin")).json()["id"] == "twin"


async def test_a_chat_wakes_no_model_that_cannot_answer_it(house: House) -> None:
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "model": "flux"})
    assert answer.status_code == 400
    assert "of kind diffusion" in answer.json()["error"]["message"]
    assert not house.peers.admits


async def test_a_silent_scheduler_is_no_reason_not_to_ask_it(house: House) -> None:
    await house.scheduler_server.stop()
    answer = await house.http.post("/v1/chat/completions", json={**CHAT, "model": "twin"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")


# Whose a request is.


async def test_a_chat_says_whose_it_is(house: House) -> None:
    post = house.http.post("/v1/chat/completions", json=CHAT, headers={"X-Cohabit-Key": "a b"})
    assert (await asyncio.wait_for(post, DEADLINE_S)).status_code == 200
    await house.http.post("/v1/chat/completions", json=CHAT)
    assert [admit.fairness_key for admit in house.peers.admits] == ["a b", ""]
    assert house.peers.metadata[0][PERMIT_ID] == "p1"


@pytest.mark.parametrize("path", ["/v1/chat/completions", RUNS])
@pytest.mark.parametrize("key", ["", "x" * 129, "a\tb", "kéy"])
async def test_a_name_that_is_none_is_refused(house: House, path: str, key: str) -> None:
    body = RUN if path == RUNS else CHAT
    headers = {b"x-cohabit-key": key.encode("latin-1")}
    answer = await house.http.post(path, json=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-cohabit-key"
    assert not house.peers.admits
