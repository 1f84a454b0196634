"""A model meant for a card, in a house without: refused, or degraded where that is allowed."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.house import House, running

CARD = {"path": "tiny.gguf", "context_tokens": 512, "gpu_layers": "all"}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    models = {
        "plain": {"path": "tiny.gguf", "context_tokens": 512},
        "strict": CARD,
        "lenient": CARD | {"allow_cpu_fallback": True},
    }
    with running(tmp_path_factory.mktemp("placed"), llm={"models": models}) as up:
        yield up


async def chat(house: House, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    async with httpx.AsyncClient(base_url=house.url, timeout=60) as client:
        return await client.post("/v1/chat/completions", json=body)


async def get(house: House, path: str) -> tuple[int, Any]:
    async with httpx.AsyncClient(base_url=house.url, timeout=10) as client:
        answer = await client.get(path)
    return answer.status_code, answer.json()


async def test_no_model_falls_back_to_the_cpu_in_silence(house: House) -> None:
    answer = await chat(house, "strict")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_failed")
    assert "meant for a card" in answer.json()["error"]["message"]


async def test_one_that_may_is_degraded_until_it_leaves(house: House) -> None:
    assert (await chat(house, "plain")).status_code == 200
    assert (await get(house, "/readyz"))[0] == 200
    assert (await chat(house, "lenient")).status_code == 200
    code, said = await get(house, "/readyz")
    assert code == 503
    assert "The model 'lenient' is degraded" in said["error"]["message"]
    code, said = await get(house, "/health")
    assert (code, said["status"]) == (200, "degraded")
    _, said = await get(house, "/status")
    placed = {one["name"]: one["instances"] for one in said["models"]}
    assert placed["lenient"][0]["placement"]["degraded"]
    assert not placed["plain"][0]["placement"]["degraded"]
    assert placed["plain"][0]["placement"]["kind"] == "cpu"
    async with httpx.AsyncClient(base_url=house.url, timeout=60) as client:
        await client.post("/v1/admin/models/lenient/unload")
    assert (await get(house, "/readyz"))[0] == 200
