"""Clients that ask one thing after the other until their time is over."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

from bench.soak.mix import KINDS, Kind, complaint, text_of

_ANSWER_S = 60.0
_MOST_COMPLAINTS = 20


@dataclass(slots=True)
class Tally:
    """What was asked, and what was wrong with the answers."""

    asked: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    """The first few."""
    wrong: int = 0

    def complain(self, what: str) -> None:
        """Take a complaint down."""
        self.wrong += 1
        if len(self.complaints) < _MOST_COMPLAINTS:
            self.complaints.append(what)


async def ask(url: str, clients: int, for_s: float) -> Tally:
    """Have `clients` ask for so long; each kind of request comes equally often."""
    tally, numbers, until_s = Tally(), itertools.count(), time.monotonic() + for_s
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with (
        httpx.AsyncClient(base_url=url, timeout=_ANSWER_S, trust_env=False, limits=limits) as http,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(clients):
            group.create_task(_client(http, numbers, until_s, tally))
    return tally


async def ask_each_once(url: str) -> None:
    """One request of each kind. Raises RuntimeError when one is not answered as it should be."""
    async with httpx.AsyncClient(base_url=url, timeout=_ANSWER_S, trust_env=False) as http:
        for number, kind in enumerate(KINDS):
            if said := await _ask(http, kind, number):
                raise RuntimeError(said)


async def _client(
    http: httpx.AsyncClient, numbers: Iterator[int], until_s: float, tally: Tally
) -> None:
    while time.monotonic() < until_s:
        number = next(numbers)
        kind = KINDS[number % len(KINDS)]
        try:
            async with asyncio.timeout(_ANSWER_S):
                said = await _ask(http, kind, number)
        except (httpx.HTTPError, TimeoutError) as error:
            said = f"{kind.name}: {error!r}"
        tally.asked[kind.name] += 1
        if said:
            tally.complain(said)


async def _ask(http: httpx.AsyncClient, kind: Kind, number: int) -> str:
    """What is wrong with the answer; empty: nothing."""
    body = kind.body(text_of(number))
    async with http.stream("POST", kind.path, json=body) as answer:
        if not kind.hangs_up_after:
            return complaint(kind, answer.status_code, (await answer.aread()).decode())
        left = kind.hangs_up_after
        async for _ in answer.aiter_raw():
            left -= 1
            if left <= 0:
                break
        return complaint(kind, answer.status_code, "")
