"""What the clients of the storm ask for, drawn by dice, and how each of their requests ended."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from chassis.errors import Reason
from services.simulated.words import plan
from tests.integration.chaos_house import MODELS

DEADLINE_S = 45.0
"""Every request has ended by then: it waits at most 6 s in the queue, and 10 s for each absence
of the scheduler, or of the service that knows its lane, and runs for less than two."""
EXCUSED = frozenset(
    {
        Reason.SERVICE_UNAVAILABLE,
        Reason.ENGINE_CRASHED,
        Reason.MODEL_EVICTED,
        Reason.ADMISSION_TIMEOUT,
        Reason.DEVICE_UNREACHABLE,
    }
)
"""How a request may be refused or broken off when services are killed."""
UNDER_A_PERMIT = frozenset({Reason.PERMIT_REVOKED, Reason.GRANT_LAPSED, Reason.PERMIT_REQUIRED})
"""How else, for those who handle permits themselves; the last is said of a parent that is over."""

TIERS = ("paid", "sub", "free", "background")
KEYS = ("ann", "bob", "cy", "")
_FAMILY = {"talker": ("talk", "talk-lite")}
_CHATS = ("talker", "talk", "talk-lite", "small", "small", "pair", "pair")
_RUNS = ("paint", "paint", "film", "ears", "ears", "vectors", "vectors", "pair", "small")

Way = Literal["chat", "stream", "run", "permit", "try", "parent", "idle"]
"""Over HTTP: a chat in one piece or streamed, or a run. By gRPC: with a permit of its own, with one
that is there at once or not at all, a call on behalf of another, and a permit never used."""
_OVER_HTTP: tuple[Way, ...] = ("chat", "stream", "run")
_BY_GRPC: tuple[Way, ...] = ("permit", "permit", "try", "parent", "idle")

How = Literal["complete", "refused", "broken", "hung up", "wrong"]


@dataclass(frozen=True, slots=True)
class Wish:
    """One request."""

    id: str
    way: Way
    model: str
    """A key, or a family."""
    tier: str
    key: str
    max_tokens: int = 0
    work_ms: int = 0
    hang_up_s: float | None = None
    """When its client leaves."""

    @property
    def serves(self) -> tuple[str, ...]:
        """The models that may answer it."""
        return _FAMILY.get(self.model, (self.model,))

    @property
    def words(self) -> str:
        """What a simulated model answers."""
        return "".join(plan(limit_tokens=self.max_tokens, own_tokens=1000, stops=()).words)


@dataclass(frozen=True, slots=True)
class End:
    """How a request ended, seen from its client."""

    wish: Wish
    how: How
    reason: str = ""
    """Of what was refused, or broken off after it had begun; what was wrong."""
    took_s: float = 0.0

    @property
    def is_wrong(self) -> bool:
        """This must not happen, whoever is killed."""
        if self.how in ("complete", "hung up"):
            return False
        allowed = EXCUSED | (frozenset() if self.wish.way in _OVER_HTTP else UNDER_A_PERMIT)
        if self.wish.way == "try":
            allowed |= {Reason.SATURATED}
        return self.how == "wrong" or self.reason not in allowed

    def __str__(self) -> str:
        wish = self.wish
        return f"{wish.id} ({wish.way} {wish.model} {wish.tier}): {self.how} {self.reason}"


def wishes(client: str, dice: random.Random, *, by_grpc: bool) -> Iterator[Wish]:
    """The requests of one client, one after the other."""
    for number in itertools.count():
        way = dice.choice(_BY_GRPC if by_grpc else _OVER_HTTP)
        wish = Wish(
            id=f"{client}-{number}",
            way=way,
            model=dice.choice(_CHATS if way in ("chat", "stream") else _RUNS),
            tier=dice.choices(TIERS, (3, 3, 3, 1))[0],
            key=dice.choice(KEYS),
            max_tokens=dice.randint(5, 300),
            work_ms=dice.choice((500, 6000, 20_000)),
        )
        if dice.random() < 0.15:
            wish = replace(wish, hang_up_s=dice.uniform(0, 0.6))
        yield wish


def calm_wishes() -> Iterator[Wish]:
    """One for each model, by the route it is made for."""
    for key, model in MODELS.items():
        way: Way = "chat" if model["kind"] == "language" else "run"
        yield Wish(f"calm-{key}", way, key, "free", "", max_tokens=5, work_ms=500)
