"""Service between keys stays within the bound of the Virtual Token Counter.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024), theorem 4.4: while clients f
and g are both backlogged, over whatever interval, their service differs by at most twice the most
that one decision can be wrong by. Theirs counts tokens; here service W is permit-time, and what can
be granted at once and turn out longest is every permit for the longest run:

    | W_f / w_f - W_g / w_g |  ≤  2 · permits · longest run / min(w_f, w_g)

A key that comes back starts at the least active one, and keys in the middle of their runs are as
much as one such error apart already: for a pair of which one was away, that much is added.

The clients here keep their queues filled, go idle and come back; run times, costs and weights are
random, and one client may always bring the longest or the dearest. No oracle decides anything:
only service is measured, at every grant and every end, where the differences have their extremes.
"""

import heapq
import random
from dataclasses import dataclass, field
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.core.scheduler import SchedulerCore
from services.scheduler.core.settings import Fairness, Settings
from services.scheduler.core.values import (
    Effect,
    Grant,
    InstanceFacts,
    Lane,
    ModelFacts,
    Request,
    State,
    Tier,
)
from tests.deep.history import PATIENCE, histories

pytestmark = PATIENCE

LANES = {f"c{cost}": Lane(f"c{cost}", cost, 10**9, 10**9) for cost in (1, 2, 3)}
BACKLOG = 6
"""Requests that a backlogged key has waiting, always: more than can be granted at once."""


def core_of(permits: int, weights: dict[str, float]) -> SchedulerCore:
    """A core with two models that have places enough."""
    settings = Settings(
        permits, LANES.__getitem__, use_within_ms=10**9, fairness=Fairness(weights=weights)
    )
    core = SchedulerCore(settings)
    for key in ("m1", "m2"):
        instance = InstanceFacts(f"{key}-1", State.READY, f"unix:{key}", places=100)
        core.model_changed(0, ModelFacts(key, "c1", State.READY, 100, instances=(instance,)))
    core.catalogue_complete(0)
    return core


@dataclass
class Client:
    """A key: what it brings and what it has been served."""

    weight: float
    costs: tuple[int, ...]
    run_ms: tuple[int, int]
    active: bool = True
    waiting: int = 0
    served: float = 0.0
    """Permit-milliseconds of what has ended."""
    running: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(cost, since)"""

    def service(self, now: int) -> float:
        """What it has had up to now, by weight."""
        live = sum(cost * (now - since) for cost, since in self.running.values())
        return (self.served + live) / self.weight


@dataclass
class House:
    """A core under clients that never let their queues run dry while they are active."""

    permits: int
    clients: dict[str, Client]
    chance: random.Random
    now: int = 0
    count: int = 0
    costs: dict[str, int] = field(default_factory=dict)
    ends: list[tuple[int, str, str]] = field(default_factory=list)
    since: dict[tuple[str, str], float] = field(default_factory=dict)
    """How far a pair was apart when both began to be backlogged."""
    rejoined: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of which one was away meanwhile."""

    def __post_init__(self) -> None:
        self.core = core_of(self.permits, {k: c.weight for k, c in self.clients.items()})
        self.most = self.permits * max(c.run_ms[1] for c in self.clients.values())

    def fill(self) -> None:
        """Every active client's queue is full again."""
        for key, client in self.clients.items():
            while client.active and client.waiting < BACKLOG:
                self._arrive(key, client)

    def _arrive(self, key: str, client: Client) -> None:
        self.count += 1
        name, cost = f"{key}:{self.count}", self.chance.choice(client.costs)
        self.costs[name] = cost
        client.waiting += 1
        model = self.chance.choice(("m1", "m2"))
        wish = Request(name, model, Tier.SUB, self.now, lane=f"c{cost}", key=key)
        self._take(self.core.arrive(self.now, wish))

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Grant):
                self._begin(effect.permit_id)

    def _begin(self, name: str) -> None:
        key = name.split(":", maxsplit=1)[0]
        client = self.clients[key]
        client.waiting -= 1
        client.running[name] = (self.costs[name], self.now)
        heapq.heappush(self.ends, (self.now + self.chance.randint(*client.run_ms), key, name))

    def end_next(self) -> None:
        """The next run ends, and its queue is filled before anybody looks."""
        self.now, key, name = heapq.heappop(self.ends)
        client = self.clients[key]
        cost, since = client.running.pop(name)
        client.served += cost * (self.now - since)
        self.core.permit_started(self.now, name, "m1", "m1-1")
        self.core.permit_over(self.now, name)
        self._take(self.core.leave(self.now, name))
        self.fill()

    def toggle(self, key: str) -> None:
        """A client goes idle (what waits leaves), or comes back from it."""
        client = self.clients[key]
        if not client.active and client.running:
            return  # it is not idle yet
        client.active = not client.active
        if not client.active:
            for name in [n for n in self.costs if n.startswith(f"{key}:")]:
                if name in self.core.room:  # one leaving may let the next of them run
                    client.waiting -= 1
                    self._take(self.core.leave(self.now, name))
            self.rejoined |= {pair for pair in self.since if key in pair}
            self.since = {pair: at for pair, at in self.since.items() if key not in pair}
        self.fill()

    def check(self) -> None:
        """No two drift further apart than the bound while both are backlogged."""
        backlogged = [key for key, client in self.clients.items() if client.active]
        for pair in combinations(backlogged, 2):
            one, other = (self.clients[key] for key in pair)
            apart = one.service(self.now) - other.service(self.now)
            drift = abs(apart - self.since.setdefault(pair, apart))
            bound = 2 * self.most / min(one.weight, other.weight)
            if pair in self.rejoined:
                bound += self.most / min(client.weight for client in self.clients.values())
            assert drift <= bound + 1e-6, f"{pair} drift {drift:.0f} apart, bound {bound}"


CLIENT = st.builds(
    Client,
    weight=st.sampled_from((1.0, 2.0, 0.5, 3.0)),
    costs=st.sampled_from(((1,), (3,), (1, 2, 3), (1, 1, 3))),
    run_ms=st.sampled_from(((1, 10), (1, 1_000), (1_000, 1_000), (900, 1_000))),
)


@given(
    permits=st.integers(3, 6),
    clients=st.lists(CLIENT, min_size=2, max_size=4),
    seed=st.integers(0, 2**32),
    restless=st.sampled_from((0.0, 0.0, 0.05)),
)
@histories(usual=60, deep=2_000)
def test_no_two_backlogged_keys_drift_apart(
    permits: int, clients: list[Client], seed: int, restless: float
) -> None:
    """Whoever brings what, and whoever was away meanwhile."""
    named = {f"k{i}": client for i, client in enumerate(clients)}
    house = House(permits, named, random.Random(seed))
    house.fill()
    house.check()
    for _ in range(150):
        house.end_next()
        house.check()
        if house.chance.random() < restless:
            house.toggle(house.chance.choice(list(named)))
            house.fill()
        if not house.ends:
            break


@given(away_ms=st.sampled_from((1_000, 100_000, 1_000_000)), weight=st.sampled_from((1.0, 2.0)))
@histories(usual=6, deep=100)
def test_idleness_earns_no_credit_and_costs_nothing(away_ms: int, weight: float) -> None:
    """Two keys share evenly from the moment the second comes (back), however long it was away."""
    clients = {"old": Client(weight, (1,), (100, 100)), "new": Client(weight, (1,), (100, 100))}
    house = House(2, clients, random.Random(7))
    house.toggle("new")
    while house.now < away_ms:
        house.end_next()
    house.toggle("new")
    before = {key: client.served for key, client in clients.items()}
    for _ in range(40):
        house.end_next()
    gained = [clients[key].served - before[key] for key in ("old", "new")]
    assert abs(gained[0] - gained[1]) <= 2 * 2 * 100


@given(
    keyed=st.booleans(),
    models=st.lists(st.sampled_from(("m1", "m2")), min_size=1, max_size=30),
    permits=st.integers(1, 4),
)
@histories(usual=40, deep=500)
def test_without_keys_it_is_first_come_first_served(
    keyed: bool, models: list[str], permits: int
) -> None:
    """Nobody has a key, or everybody the same."""
    core = core_of(permits, {})
    granted: list[str] = []

    def take(effects: list[Effect]) -> None:
        granted.extend(e.permit_id for e in effects if isinstance(e, Grant))

    for number, model in enumerate(models):
        name, key = f"r{number}", "ann" if keyed else ""
        take(core.arrive(number, Request(name, model, Tier.SUB, number, key=key)))
    for number in range(len(models)):
        name = granted[number]
        core.permit_started(1_000, name, "m1", "m1-1")
        core.permit_over(1_000, name)
        take(core.leave(1_000, name))
    assert granted == [f"r{number}" for number in range(len(models))]
