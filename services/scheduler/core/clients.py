"""Fairness between clients: the running time that each key has had, weighted. Pure.

A key's virtual time is what its requests have cost, in permit-milliseconds, divided by its weight,
over the whole device. Who has had least goes first. After Sheng et al., "Fairness in Serving Large
Language Models" (OSDI 2024), whose Virtual Token Counter this is, with permit-time for tokens:

- A run is charged at the grant by what it is expected to cost and set right at its end.
- A key that had nothing waiting or running starts at the virtual time of the least active one, or
  at its own if that is higher: no credit for the time it was away. Nor does it owe anything: those
  who went on running have run up the clock that it starts at.

For two keys f, g that are backlogged in one tier all the while, and service W in permit-time:

    |W_f / w_f - W_g / w_g| ≤ 2 · permits · longest run / min(w_f, w_g)
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from services.scheduler.core.settings import Fairness

if TYPE_CHECKING:
    from services.scheduler.core.line import Line

_SLACK = 64


class Client:
    """One fairness key."""

    __slots__ = ("key", "lines", "running", "virtual_ms", "waiting", "weight")

    def __init__(self, key: str, weight: float) -> None:
        self.key = key
        self.weight = weight
        self.virtual_ms = 0.0
        self.waiting = 0
        self.running = 0
        self.lines: dict[Line, None] = {}
        """Where it waits."""

    @property
    def active(self) -> bool:
        """Something of it waits or runs."""
        return self.waiting > 0 or self.running > 0


class Clients:
    """Every key that is active, or was lately; memory is bounded by what is alive and the TTL."""

    def __init__(self, fairness: Fairness) -> None:
        self._fairness = fairness
        self._known: dict[str, Client] = {}
        self._idle: OrderedDict[str, int] = OrderedDict()  # key → since when, oldest first
        self._least: list[tuple[float, str]] = []
        self._last_ms = 0.0
        """Virtual time of the key that went idle last."""

    def __iter__(self) -> Iterator[Client]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def enter(self, now_ms: int, key: str) -> Client:
        """A request of the key begins to wait (or, after a restart, is found running)."""
        client = self._known.get(key)
        if client is not None and (client.waiting or client.running):
            return client
        self._forget_idle(now_ms)
        client = self._known.get(key)
        if client is None:
            weight = self._fairness.weights.get(key, self._fairness.default_weight)
            client = self._known[key] = Client(key, weight)
            if len(self._known) == 2:
                self._note(next(iter(self._known.values())))
        self._idle.pop(key, None)
        client.virtual_ms = max(client.virtual_ms, self._floor_ms())
        if len(self._known) > 1:
            self._note(client)
        return client

    def charge(self, client: Client, permit_ms: float) -> None:
        """Add to a key's virtual time; negative: give back what was charged too much."""
        client.virtual_ms += permit_ms / client.weight
        if len(self._known) == 1:
            return  # compared with nobody
        if permit_ms < 0 or self._fairness.soft_inflight:  # where it grew, that is seen in time
            self._note(client)
            for line in client.lines:
                line.refresh(client)

    def settle(self, now_ms: int, client: Client) -> None:
        """After something of the key ended: it may be idle now."""
        if client.waiting or client.running:
            return
        self._last_ms = client.virtual_ms
        self._idle[client.key] = now_ms
        self._forget_idle(now_ms)

    def _floor_ms(self) -> float:
        """The least virtual time among active keys; without any, where the last one left."""
        least = self._least
        while least:
            virtual_ms, key = least[0]
            client = self._known.get(key)
            if client is None or not client.active or client.virtual_ms < virtual_ms:
                heapq.heappop(least)
            elif client.virtual_ms == virtual_ms:
                return virtual_ms
            else:
                heapq.heapreplace(least, (client.virtual_ms, key))
        return self._last_ms

    def _note(self, client: Client) -> None:
        heapq.heappush(self._least, (client.virtual_ms, client.key))
        if len(self._least) > 2 * len(self._known) + _SLACK:
            self._least = [(c.virtual_ms, c.key) for c in self._known.values() if c.active]
            heapq.heapify(self._least)

    def _forget_idle(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._fairness.idle_ttl_ms
        while self._idle:
            key, since_ms = next(iter(self._idle.items()))
            if since_ms > oldest_ms:
                return
            del self._idle[key]
            del self._known[key]
