"""However many requests come, and whatever they hold: the series of /metrics do not grow, the logs
are bounded, and nothing of what a client sent is told to anybody but its answer.

One million requests at a smaller scale: what they may hold is drawn anew for each. Every value that
a client makes up has `CANARY` in it, so that one search over all that is told finds any of them.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.house import House, running

REQUESTS = 5_000
WARM_ROUNDS = 3
SIDE_BY_SIDE = 16
DEADLINE_S = 30.0
LOG_MIB = 1
MOST_LINE_BYTES = 448
SHOWN = ("/metrics", "/errors", "/status")
CANARY = "c4n4ry"
CHANCE = random.Random(20261130)

Headers = dict[str, Any]


def odd() -> str:
    """What no other request holds."""
    return f"{CANARY}{CHANCE.getrandbits(64):016x}"


@dataclass(frozen=True)
class Kind:
    """A kind of request, filled with something else each time."""

    method: str
    path: Callable[[], str]
    content: Callable[[], bytes] = lambda: b""
    headers: Callable[[], Headers] = dict


def chat(**changes: Any) -> bytes:
    said = {"role": "user", "content": odd()}
    return body(**({"model": "tiny", "messages": [said], "max_tokens": 1} | changes))


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def long_id() -> str:
    """The one value of its own that a client finds in the log; it is cut."""
    return f"{CHANCE.getrandbits(4096):x}"


def at(path: str) -> Callable[[], str]:
    return lambda: path


def keyed() -> Headers:
    return {
        "authorization": f"Bearer {odd()}",
        "x-api-key": odd(),
        "cookie": odd(),
        "user-agent": odd(),
        "x-forwarded-for": odd(),
        "referer": f"http://{odd()}/",
        odd(): odd(),
    }


CHAT, COMPLETIONS = at("/v1/chat/completions"), at("/v1/completions")
KINDS = (
    Kind("POST", CHAT, lambda: chat(user=odd()), keyed),
    Kind("POST", CHAT, lambda: chat(stream=True), lambda: {"x-cohabit-key": odd()}),
    Kind("POST", CHAT, lambda: chat(model=odd()), keyed),
    Kind("POST", CHAT, lambda: chat(model=odd(), stream=True)),
    Kind("POST", CHAT, lambda: chat(**{odd(): odd()})),
    Kind("POST", CHAT, lambda: chat(temperature=odd())),
    Kind("POST", CHAT, lambda: chat(messages=[{"role": odd(), "content": odd()}])),
    Kind("POST", CHAT, lambda: chat(response_format={"type": odd()})),
    Kind("POST", CHAT, lambda: chat(tools=[{"type": odd()}])),
    Kind("POST", CHAT, lambda: b'{"' + odd().encode()),
    Kind("POST", CHAT, lambda: odd().encode() + bytes(range(256))),
    Kind("POST", CHAT, chat, lambda: {"x-cohabit-tier": odd()}),
    Kind("GET", at("/v1/models"), headers=lambda: {"x-request-id": long_id()}),
    Kind("POST", CHAT, chat, lambda: {"x-cohabit-tier": CHANCE.choice(("free", "free"))}),
    Kind("POST", CHAT, chat, lambda: {"x-cohabit-key": f"{odd()}\u00e9".encode()}),
    Kind("POST", COMPLETIONS, lambda: body(model=odd(), prompt=odd())),
    Kind("POST", at("/v1/embeddings"), lambda: body(model=odd(), input=odd())),
    Kind("POST", at("/v1/messages"), lambda: body(model=odd(), messages=odd()), keyed),
    Kind("POST", at("/v1/responses"), lambda: body(model=odd(), input=odd())),
    Kind("GET", lambda: f"/v1/responses/{odd()}", headers=keyed),
    Kind("GET", at("/v1/models"), headers=keyed),
    Kind("GET", lambda: f"/v1/models/{odd()}"),
    Kind("GET", lambda: f"/v1/models/{odd()}/{odd()}"),
    Kind("GET", lambda: f"/{odd()}", headers=keyed),
    Kind("POST", lambda: f"/{odd()}/{odd()}", chat),
    Kind("DELETE", CHAT),
    Kind("PATCH", lambda: f"/{odd()}"),
    Kind("OPTIONS", CHAT, headers=lambda: {"origin": f"http://{odd()}"}),
    Kind("GET", lambda: f"/%2e%2e/{odd()}"),
    Kind("GET", at("/v1/admin/models"), headers=keyed),
    Kind("POST", lambda: f"/v1/admin/models/{odd()}/load"),
    Kind("GET", at("/health"), headers=keyed),
    Kind("GET", at("/status"), headers=keyed),
    Kind(CANARY.upper(), at("/v1/models")),
)  # fmt: skip


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    edge: dict[str, object] = {"access_log_file": "log/access.log", "access_log_mib": LOG_MIB}
    llm: dict[str, object] = {
        "models": {"tiny": {"path": "tiny.gguf", "places": 4, "context_tokens": 512}}
    }
    with running(tmp_path_factory.mktemp("h"), edge=edge, llm=llm) as house:
        yield house


async def sent(http: httpx.AsyncClient, kind: Kind) -> int:
    answer = await http.request(
        kind.method,
        kind.path(),
        params={odd(): odd()},
        headers=kind.headers(),
        content=kind.content(),
    )
    return answer.status_code


async def many(house: House, kinds: list[Kind]) -> list[int]:
    """Each sent once, some at a time; their statuses."""
    left, statuses = iter(kinds), []

    async def client(http: httpx.AsyncClient) -> None:
        while (kind := next(left, None)) is not None:
            statuses.append(await sent(http, kind))

    async with (
        httpx.AsyncClient(base_url=house.url, timeout=DEADLINE_S, trust_env=False) as http,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(SIDE_BY_SIDE):
            group.create_task(client(http))
    return statuses


def told(house: House, path: str) -> str:
    return httpx.get(f"{house.url}{path}", timeout=DEADLINE_S, trust_env=False).text


def series(house: House) -> set[tuple[str, str]]:
    families = text_string_to_metric_families(told(house, "/metrics"))
    return {
        (sample.name, str(sorted(sample.labels.items())))
        for family in families
        for sample in family.samples
    }


def lines(house: House) -> list[Path]:
    return sorted((house.folder / "log").iterdir())


def test_nothing_grows_and_nothing_is_told(house: House) -> None:
    asyncio.run(many(house, list(KINDS) * WARM_ROUNDS))
    for _ in range(2):  # to look is counted, too
        assert all(told(house, path) for path in SHOWN)
    before, logged = series(house), house.log.stat().st_size
    statuses = asyncio.run(many(house, CHANCE.choices(KINDS, k=REQUESTS)))
    assert len(statuses) == REQUESTS
    assert {200, 400, 404, 405} <= set(statuses)
    assert max(statuses) < 500, "this test is about requests that are answered"
    assert sorted(series(house) - before) == []
    assert house.log.stat().st_size - logged < 64 * 1024, "requests are in the other log"
    files = lines(house)
    assert [path.name for path in files] == [
        "access.log", "access.log.1", "access.log.2", "access.log.3"
    ]  # fmt: skip
    assert sum(path.stat().st_size for path in files) <= LOG_MIB << 20
    assert max(len(line) for path in files for line in path.read_bytes().splitlines()) < (
        MOST_LINE_BYTES
    )
    everything = [house.log.read_text(), *(path.read_text() for path in files)]
    everything += [told(house, path) for path in SHOWN]
    for text in everything:
        assert text
        assert CANARY.lower() not in text.lower()
