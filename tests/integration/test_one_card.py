"""36 models on one card of 32 GB, with every service real: 500 requests of all kinds, while a
foreign tenant takes 8 GB and gives it back. The engines are simulated, and 250 times as fast.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from chassis.simulated_card import SimulatedCard
from cohabit.broker.v1 import broker_pb2
from cohabit.models.v1 import models_pb2
from tests.integration.house import ROOT, House, free_port, started, until

EXAMPLE = ROOT / "examples" / "one-5090.yaml"
REQUESTS = 500
DEADLINE_S = 120.0
TIERS = ("paid", "sub", "free", "background")
KEYS = ("ann", "bob", "cy", "dee", "")
VISITOR_MIB, VISIT_S = 8192, 15.0
VISITOR = {"name": "game", "at_s": 8.0, "for_s": VISIT_S, "mib": VISITOR_MIB}

READY, RESIDENT = models_pb2.MODEL_STATE_READY, broker_pb2.LEASE_KIND_RESIDENT

Models = dict[str, dict[str, Any]]


def at_speed(folder: Path, port: int) -> Path:
    """The example, 250 times as fast, with a visitor."""
    whole = yaml.safe_load(EXAMPLE.read_text())
    whole |= {"run_dir": "run", "state_dir": "state"}
    whole["broker"]["foreign"] = [VISITOR]
    # A load takes half a second however fast the engines are, for that is what a process costs. All
    # 500 come at once, so all would soon have waited for too long, and be served in their order.
    whole["scheduler"] |= {"max_swap_delay_s": 60.0, "linger_s": 0.1, "background_quiet_s": 0.0}
    for lane in whole["scheduler"]["lanes"].values():
        lane["wait_s"] = 2 * DEADLINE_S  # nobody is refused: whoever is stuck fails the test
    whole["simulated"]["time_scale"] = 0.004
    whole["edge"]["listen"] = f"127.0.0.1:{port}"
    path = folder / "cohabit.yaml"
    path.write_text(yaml.safe_dump(whole))
    return path


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder, port = tmp_path_factory.mktemp("card"), free_port()
    with started(at_speed(folder, port), port) as house:
        yield house


@dataclass(frozen=True)
class Wish:
    """One request."""

    name: str
    """A model's key, or a family."""
    serves: frozenset[str]
    """The keys that may serve it."""
    chats: bool
    stream: bool
    headers: dict[str, str]
    work_ms: int = 0
    max_tokens: int = 0


def wishes(models: Models, seed: int) -> list[Wish]:
    """Every model is asked thrice by a tier of its own; all tiers ask for the popular six."""
    dice = random.Random(seed)
    homes = {key: TIERS[number % len(TIERS)] for number, key in enumerate(models)}
    asked = [*homes.items()] * 3
    for key in dice.choices(dice.sample([*models], 6), k=REQUESTS - len(asked)):
        asked.append((key, dice.choices(TIERS, (3, 3, 3, 1))[0]))
    dice.shuffle(asked)
    return [_wish(key, tier, models, dice) for key, tier in asked]


def _wish(key: str, tier: str, models: Models, dice: random.Random) -> Wish:
    model = models[key]
    family = model.get("family") if dice.random() < 0.3 else None
    twins = {name for name, other in models.items() if other.get("family") == family}
    headers = {"x-cohabit-tier": tier}
    if name := dice.choice(KEYS):
        headers["x-cohabit-key"] = name
    return Wish(
        name=family or key,
        serves=frozenset(twins if family else {key}),
        chats=model["kind"] == "language",
        stream=dice.random() < 0.5,
        headers=headers,
        work_ms=min(20_000, round(1000 * model.get("work_s", 0))),
        max_tokens=dice.randint(1, 20),
    )


@dataclass
class Crowd:
    """Those who ask, and what they were told."""

    house: House
    http: httpx.AsyncClient
    openai: openai.AsyncOpenAI
    served: Counter[str] = field(default_factory=Counter)
    answered_s: list[float] = field(default_factory=list)

    async def ask(self, wish: Wish) -> None:
        if not wish.chats:
            served = await self._run(wish)
        elif wish.stream:
            served = await self._stream(wish)
        else:
            served = await self._chat(wish)
        assert served in wish.serves, (served, wish)
        self.served[served] += 1
        self.answered_s.append(time.monotonic())

    async def _run(self, wish: Wish) -> str:
        body = {"model": wish.name, "work_ms": wish.work_ms}
        answer = await self.http.post("/v1/simulated/runs", json=body, headers=wish.headers)
        assert answer.status_code == 200, (wish, answer.text)
        return str(answer.json()["model"])

    async def _chat(self, wish: Wish) -> str:
        answer = await self.openai.chat.completions.create(
            model=wish.name,
            messages=[{"role": "user", "content": "How are you?"}],
            max_tokens=wish.max_tokens,
            extra_headers=wish.headers,
        )
        assert answer.usage is not None
        assert answer.usage.completion_tokens == wish.max_tokens
        assert "This answer is simulated".startswith((answer.choices[0].message.content or "")[:24])
        return answer.model

    async def _stream(self, wish: Wish) -> str:
        body = {
            "model": wish.name,
            "messages": [{"role": "user", "content": "How are you?"}],
            "max_tokens": wish.max_tokens,
            "stream": True,
        }
        path = "/v1/chat/completions"
        async with self.http.stream("POST", path, json=body, headers=wish.headers) as answer:
            assert answer.status_code == 200, (wish, await answer.aread())
            lines = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]", (wish, lines[-1])
        last = json.loads(lines[-2].removeprefix("data: "))
        assert last["choices"][0]["finish_reason"] == "length"
        return str(last["model"])


async def the_visit(card: SimulatedCard) -> tuple[float, int, float]:
    """When the visitor took its first memory, the most that it held, when it had left."""
    await until(lambda: _visited(card), DEADLINE_S, "the visitor has come")
    came_s, most_mib = time.monotonic(), 0
    while held_mib := _visitor_mib(card):
        most_mib = max(most_mib, held_mib)
        await asyncio.sleep(0.02)  # a poll of another process, which the script of its visit bounds
    return came_s, most_mib, time.monotonic()


@pytest.mark.timeout(200)
async def test_five_hundred_requests_over_36_models_and_none_is_lost(house: House) -> None:
    models: Models = yaml.safe_load(EXAMPLE.read_text())["simulated"]["models"]
    assert len(models) == 36
    card = SimulatedCard(house.folder / "run" / "sim0.card")
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(
            base_url=house.url, timeout=DEADLINE_S, limits=limits, trust_env=False
        ) as http,
        openai.AsyncOpenAI(
            base_url=f"{house.url}/v1",
            api_key="none",
            max_retries=0,
            timeout=DEADLINE_S,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False),
        ) as client,
    ):
        crowd = Crowd(house, http, client)
        visit = asyncio.create_task(the_visit(card))
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            for wish in wishes(models, seed=5090):
                group.create_task(crowd.ask(wish))
        came_s, most_mib, _ = await asyncio.wait_for(visit, VISIT_S)

    # The house has moved aside for the visitor, in the middle of its work.
    assert most_mib == VISITOR_MIB
    assert crowd.answered_s[0] < came_s < crowd.answered_s[-1]

    assert crowd.served.total() == REQUESTS
    assert card.out_of_memory_count == 0
    await until(
        lambda: _is_at_rest(house), 10, "nothing runs or waits, and only models hold memory"
    )
    assert card.used_mib() == sum(lease.granted_mib for lease in await house.leases())


def _visitor_mib(card: SimulatedCard) -> int:
    return sum(each.mib for each in card.used_by() if each.name.startswith("foreign/"))


async def _visited(card: SimulatedCard) -> bool:
    return _visitor_mib(card) > 0


async def _is_at_rest(house: House) -> bool:
    status, leases, ready = await house.status(), await house.leases(), set()
    for model in (await house.models()).values():
        ready |= {one.lease_id for one in model.instances if one.state == READY}
    resident = {lease.lease_id for lease in leases if lease.kind == RESIDENT}
    waiting = sum(tier.waiting for tier in status.tiers)
    return (
        not (status.permits_in_use or waiting) and len(leases) == len(ready) and resident == ready
    )
