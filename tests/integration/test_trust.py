"""Ways into a house with keys that are no key: none opens, and nothing of them is logged."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cohabit.models.v1 import models_pb2
from tests.integration.house import House, running, until
from tests.integration.picture_house import picture_sections
from tests.integration.trust_ways import ALL, VAULT, WAYS, Known, Way
from tests.integration.trust_wire import Answer, exchange, request
from tests.keys_kit import FOREVER, FORMER, bearing, secret_of, write_keys
from tests.tiny_gguf import make_tiny_gguf

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

DEADLINE_S = 60.0
_IDLE = (models_pb2.MODEL_STATE_COLD,)


def rights(**more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    keys: dict[str, dict[str, Any]] = {
        "alice": {"expires": FOREVER},
        "bob": {"tier": "free", "models": ["tiny"]},
        "old": {"expires": FORMER},
        "off": {"disabled": True},
        "watcher": {"signals": True, "models": []},
    }
    return keys | more


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("h")
    make_tiny_gguf(_made(folder / "models") / "tiny.gguf", context=4096)
    write_keys(folder / "keys.yaml", **rights(gone={}))
    tiny = {"path": "tiny.gguf", "context_tokens": 1024, "places": 1}
    models: dict[str, object] = {"models": {"tiny": tiny, VAULT: tiny}}
    sections = picture_sections(folder / "models") | {"edge": {"keys_file": "keys.yaml"}}
    with running(folder, llm=models, **sections) as up:
        yield up
    # The whole of what the house wrote, all that was tried included.
    log = up.log.read_text()
    assert "invalid_api_key" in log
    assert [secret for secret in ALL if secret[:16] in log] == []
    for told in ("elsewhere.example", "Open.", "x-forwarded", "?api_key"):
        assert told not in log.lower()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def known(house: House) -> Known:
    """Work of alice's, and a key that was taken once and is not any more."""
    return asyncio.run(_worked(house))


async def _worked(house: House) -> Known:
    async with httpx.AsyncClient(
        base_url=house.url, headers=bearing("alice"), timeout=DEADLINE_S, trust_env=False
    ) as alice:
        body: dict[str, Any] = {"model": "tiny", "input": "Hello", "max_output_tokens": 16}
        response = (await alice.post("/v1/responses", json=body)).json()["id"]
        job = (await alice.post("/v1/images/generations/jobs", json={"prompt": "a cat"})).json()
        async with alice.stream("GET", f"/v1/jobs/{job['id']}/events") as events:
            async for _ in events.aiter_bytes():
                pass
        job = (await alice.get(f"/v1/jobs/{job['id']}")).json()
        assert job["state"] == "succeeded", job
        gone = request("GET", "/v1/models", f"X-API-Key: {secret_of('gone')}")
        assert [it.status for it in await exchange(house.port, gone)] == [200]
        write_keys(house.folder / "keys.yaml", **rights())

        async def is_gone() -> bool:
            return [it.status for it in await exchange(house.port, gone)] == [401]

        await until(is_gone)
    return Known(job["id"], job["results"][0]["id"], response)


def judge(way: Way, answers: list[Answer]) -> None:
    """Fails unless every answer is one of those that may be, and says no in an envelope."""
    assert len(answers) == way.answers
    for answer in answers:
        assert answer.status in way.statuses, (answer.status, answer.body[:300])
        if answer.status >= 400:
            message = json.loads(answer.body)["error"]["message"]
            assert 20 < len(message) < 2000
        if answer.status == 401:
            assert b"www-authenticate: Bearer" in answer.head
        for secret in ALL:
            assert secret.encode() not in answer.body
        assert b"chat.completion" not in answer.body


async def asleep(house: House) -> bool:
    return (await house.models())[VAULT].state in _IDLE


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
async def test_a_way_in_is_none(house: House, known: Known, way: Way) -> None:
    judge(way, await exchange(house.port, way.sent(known)))
    assert await asleep(house)


def test_there_are_enough_ways() -> None:
    assert len({way.name for way in WAYS}) == len(WAYS) >= 40


async def test_alice_still_has_what_was_after(house: House, known: Known) -> None:
    async with httpx.AsyncClient(
        base_url=house.url, headers=bearing("alice"), timeout=DEADLINE_S, trust_env=False
    ) as alice:
        for path in (
            f"/v1/jobs/{known.job}/results/{known.result}",
            f"/v1/responses/{known.response}",
        ):
            assert (await alice.get(path)).status_code == 200
        assert (await alice.get(f"/v1/jobs/{known.job}")).json()["state"] == "succeeded"
        assert len((await alice.get("/v1/jobs")).json()["data"]) == 1
        bobs = await alice.get("/v1/jobs", headers=bearing("bob"))
        assert bobs.json()["data"] == []


async def test_the_door_does_open_for_a_key(house: House) -> None:
    """Else none of the above would tell anything. Last, because it wakes the model."""
    assert await asleep(house)
    body = {"model": VAULT, "messages": [{"role": "user", "content": "Open."}], "max_tokens": 1}
    async with httpx.AsyncClient(base_url=house.url, timeout=DEADLINE_S, trust_env=False) as http:
        for name, status in (("bob", 403), ("alice", 200)):
            answer = await http.post("/v1/chat/completions", json=body, headers=bearing(name))
            assert answer.status_code == status, answer.text
    assert not await asleep(house)
