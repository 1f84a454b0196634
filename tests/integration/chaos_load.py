"""Many clients at once, and what there is to know of their requests afterwards."""

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.integration import chaos_http
from tests.integration.chaos_grpc import Caller
from tests.integration.chaos_house import ChaosHouse
from tests.integration.chaos_wishes import End, Wish, wishes

_THINKS_S = 0.1
"""At most so long between an end and the next request."""
_RETRIES_S = (0.2, 1.0)
"""So long after a refusal, which says when to try again."""


@dataclass
class Crowd:
    """So many clients, each with one request at a time, until they are told to stop."""

    http: httpx.AsyncClient
    caller: Caller
    seed: int
    name: str
    ends: list[End] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    _leaving: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def at_work(self, over_http: int, by_grpc: int) -> AsyncIterator[None]:
        """They ask while the block runs; afterwards each awaits the end of what it has asked."""
        async with asyncio.TaskGroup() as group:
            for number in range(over_http + by_grpc):
                dice = random.Random(self.seed * 1000 + number)
                own = wishes(f"{self.name}{number}", dice, by_grpc=number >= over_http)
                group.create_task(self._live(own, dice))
            try:
                yield
            finally:
                self._leaving.set()

    async def ask(self, wish: Wish) -> list[End]:
        """One request."""
        self.asked.append(wish.id)
        if wish.way in ("chat", "stream", "run"):
            ends = [await chaos_http.ask(self.http, wish)]
        else:
            ends = await self.caller.ask(wish)
        self.ends += ends
        return ends

    async def _live(self, own: Iterator[Wish], dice: random.Random) -> None:
        while not self._leaving.is_set():
            refused = [end for end in await self.ask(next(own)) if end.reason]
            await asyncio.sleep(
                dice.uniform(*_RETRIES_S) if refused else dice.uniform(0, _THINKS_S)
            )

    @property
    def complete(self) -> list[str]:
        """Those that were served."""
        return [end.wish.id for end in self.ends if end.how == "complete"]

    def wrong(self) -> list[str]:
        """The ends that must not be, and the requests that have not exactly one."""
        counted = Counter(end.wish.id for end in self.ends)
        uncounted = [f"{name}: {counted[name]} ends" for name in self.asked if counted[name] != 1]
        twice = [f"{name}: {count} ends" for name, count in counted.items() if count != 1]
        return [str(end) for end in self.ends if end.is_wrong] + uncounted + twice

    def summary(self) -> Counter[str]:
        """How they ended."""
        return Counter(f"{end.how} {end.reason}".strip() for end in self.ends)


@asynccontextmanager
async def crowd(house: ChaosHouse, seed: int, name: str = "c") -> AsyncIterator[Crowd]:
    """Clients with their connections."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(chaos_http.caller(house.url))
        scheduler = await stack.enter_async_context(house.scheduler())
        yield Crowd(http, Caller(scheduler), seed, name)


@dataclass(frozen=True)
class Diary:
    """What the house has written into its log."""

    lines: tuple[dict[str, Any], ...]
    other: tuple[str, ...]

    @classmethod
    def of(cls, log: Path) -> "Diary":
        lines, other = [], []
        for line in log.read_text(errors="replace").splitlines():
            _, brace, rest = line.partition("{")
            try:
                lines.append(json.loads(brace + rest))
            except ValueError:
                other.append(line)
        return cls(tuple(lines), tuple(other))

    def taken_in(self) -> dict[str, list[str]]:
        """The instances that have begun a request, by its id."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for line in self.lines:
            if line.get("event") == "taken in":
                found[line["request_id"]].append(line["instance"])
        return found

    def answered(self) -> Counter[str]:
        """How often the edge has answered a request, by its id."""
        own = (line for line in self.lines if line.get("event") == "request")
        return Counter(line["request_id"] for line in own)

    def bugs(self) -> list[str]:
        """What no service may ever say, whoever is killed."""
        said = [str(line)[:2000] for line in self.lines if line.get("event") == "bug"]
        return said + [line for line in self.other if "Traceback" in line or "not shown" in line]
