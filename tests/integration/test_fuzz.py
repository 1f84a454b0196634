"""Hostile requests to every route of the house: refused or answered in their dialect, in time, and
nothing of them stays: no place, no permit, no lease, no cell of a KV cache.

`COHABIT_DEEP=1` searches for tens of minutes.
"""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.fuzz_answers import DEADLINE_S, check, post
from tests.integration.fuzz_bodies import bodies, vector_bodies
from tests.integration.fuzz_house import fuzz_house, rests
from tests.integration.fuzz_huge import cases
from tests.integration.fuzz_words import encoded
from tests.integration.house import House

pytestmark = [pytest.mark.model, pytest.mark.timeout(3600)]

DEEP = os.environ.get("COHABIT_DEEP") == "1"
EXAMPLES = 3_000 if DEEP else 120
BODIES = bodies(st.sampled_from(["tiny", "tiny", "tiny", "smollm2"])) | vector_bodies(
    "bert", "rank"
)
Request = tuple[str, dict[str, Any], int | None]
"""A path, a body, and after how many pieces of the answer its client hangs up."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with fuzz_house(tmp_path_factory.mktemp("h")) as house:
        yield house


@pytest.fixture(scope="module")
def http(house: House) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=house.url, trust_env=False) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_stays(house: House) -> Iterator[None]:
    yield
    asyncio.run(rests(house))


@pytest.mark.parametrize("path", BODIES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not DEEP,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_fields(http: httpx.Client, path: str, data: Any) -> None:
    post(http, path, encoded(data.draw(BODIES[path])))


REQUEST = st.sampled_from(sorted(BODIES)).flatmap(
    lambda path: st.tuples(st.just(path), BODIES[path], st.none() | st.integers(0, 4))
)


@settings(
    max_examples=EXAMPLES // 2,
    deadline=None,
    derandomize=not DEEP,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(requests=st.lists(REQUEST, min_size=6, max_size=12))
def test_many_at_once_of_whom_some_hang_up(house: House, requests: list[Request]) -> None:
    asyncio.run(_all_at_once(house, requests))


async def _all_at_once(house: House, requests: list[Request]) -> None:
    limits = httpx.Limits(max_connections=len(requests))
    async with (
        asyncio.timeout(DEADLINE_S),
        httpx.AsyncClient(base_url=house.url, trust_env=False, timeout=None, limits=limits) as http,
        asyncio.TaskGroup() as group,
    ):
        for path, body, pieces in requests:
            # Long answers, or they are over before anybody can hang up.
            longer = body | {"max_tokens": 400, "ignore_eos": True, "stream": True}
            sent = encoded(body if pieces is None or "max_tokens" not in body else longer)
            group.create_task(_ask(http, path, sent, pieces))
    await rests(house)


async def _ask(http: httpx.AsyncClient, path: str, body: bytes, pieces: int | None) -> None:
    """Read the whole answer and judge it; or hang up after so many pieces of it."""
    headers = {"content-type": "application/json"}
    async with http.stream("POST", path, content=body, headers=headers) as answer:
        if pieces is None:
            await answer.aread()
            check(path, answer)
            return
        left = pieces
        async for _ in answer.aiter_raw():
            left -= 1
            if left <= 0:
                return


def test_huge_and_deep_and_many(http: httpx.Client) -> None:
    for name, path, make in cases():
        try:
            post(http, path, make())
        except (AssertionError, httpx.HTTPError) as error:
            raise AssertionError(f"{name}: {error!r}") from error
