"""The example with two models that do not fit together, as a user would run it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests.integration.house import ROOT, House, running, until

pytestmark = pytest.mark.model
EXAMPLE = ROOT / "examples" / "one-at-a-time.yaml"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    example = yaml.safe_load(EXAMPLE.read_text())
    shutil.copytree(ROOT / "models", tmp_path / "models", copy_function=_link)
    with running(tmp_path, broker=example["broker"], llm=example["llm"]) as house:
        yield house


def _link(source: str, target: str) -> None:
    Path(target).symlink_to(source)


async def ask(house: House, model: str, **more: object) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    async with httpx.AsyncClient(base_url=house.url, timeout=60) as client:
        return await client.post("/v1/chat/completions", json=body | more)


async def resident(house: House) -> set[str]:
    return {lease.holder for lease in await house.leases()}


async def test_one_leaves_for_the_other(house: House) -> None:
    for model in ("wide", "narrow", "wide"):
        answer = await ask(house, model)
        assert answer.status_code == 200, answer.text

        async def alone(name: str = model) -> bool:
            return await resident(house) == {f"llm/{name}"}

        await until(alone, 5, f"{model} lives alone")
    engines = [p for p in house.processes() if "services.llm.engine_main" in p.cmdline()]
    assert len(engines) == 1


async def test_a_busy_one_stays_and_the_other_waits(house: House) -> None:
    assert (await ask(house, "wide")).status_code == 200
    body = {
        "model": "wide",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 150,
        "ignore_eos": True,
        "stream": True,
    }
    async with (
        httpx.AsyncClient(base_url=house.url, timeout=60) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as stream,
    ):
        lines = stream.aiter_lines()
        await anext(lines)
        other = await ask(house, "narrow")  # waits for the stream's model to fall idle
        assert other.status_code == 200
        rest = [line async for line in lines]
    assert rest[-2:] == ["data: [DONE]", ""], "the stream that was in the way ran to its end"
