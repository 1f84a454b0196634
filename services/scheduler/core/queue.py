"""Who waits, in order: one heap a (tier, model), so that a decision costs O(models + log n)."""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field

from services.scheduler.core.values import Request, Tier

_Key = tuple[int, int]  # first arrival, then the order in which we heard of it


@dataclass(slots=True)
class _Line:
    heap: list[tuple[_Key, Request]] = field(default_factory=list)
    alive: int = 0


class WaitingRoom:
    """Requests that wait, FIFO by first arrival within a tier and a model.

    A request that leaves is forgotten at once and swept from its heap when it comes to the front,
    or when the dead outnumber the living: memory stays within twice what waits.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[Tier, str], _Line] = defaultdict(_Line)
        self._waiting: dict[str, Request] = {}
        self._heard = 0
        self._by_tier = dict.fromkeys(Tier, 0)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, permit_id: str) -> bool:
        return permit_id in self._waiting

    def get(self, permit_id: str) -> Request | None:
        """The request of that name, if it waits."""
        return self._waiting.get(permit_id)

    def ahead(self, tier: Tier) -> int:
        """How many wait in `tier` and above: what a newcomer finds before it."""
        return sum(self._by_tier[other] for other in Tier if other >= tier)

    def waiting(self, tier: Tier) -> int:
        """How many wait in `tier`."""
        return self._by_tier[tier]

    def add(self, request: Request) -> None:
        """Put a request in its place."""
        self._heard += 1
        key = (request.arrived_ms, self._heard)
        line = self._lines[request.tier, request.model]
        heapq.heappush(line.heap, (key, request))
        line.alive += 1
        self._waiting[request.permit_id] = request
        self._by_tier[request.tier] += 1

    def remove(self, request: Request) -> None:
        """Take a request out. Does nothing if it is not in."""
        if self._waiting.pop(request.permit_id, None) is None:
            return
        line = self._lines[request.tier, request.model]
        line.alive -= 1
        self._by_tier[request.tier] -= 1
        if line.alive == 0:
            del self._lines[request.tier, request.model]
        elif len(line.heap) > 2 * line.alive + 16:
            line.heap = [entry for entry in line.heap if entry[1].permit_id in self._waiting]
            heapq.heapify(line.heap)

    def head(self, tier: Tier, model: str) -> tuple[_Key, Request] | None:
        """The next of a line, with the key that orders it among all lines of its tier."""
        line = self._lines.get((tier, model))
        if line is None:
            return None
        while line.heap[0][1].permit_id not in self._waiting:
            heapq.heappop(line.heap)
        return line.heap[0]

    def first(self, model: str) -> tuple[Tier, _Key, Request] | None:
        """The most urgent waiter of a model."""
        for tier in reversed(Tier):
            if head := self.head(tier, model):
                return tier, *head
        return None

    def models(self) -> set[str]:
        """Models that somebody waits for."""
        return {model for _, model in self._lines}

    def of(self, model: str) -> list[Request]:
        """Everyone who waits for a model, in no order."""
        return [
            request
            for tier in Tier
            if (line := self._lines.get((tier, model)))
            for _, request in line.heap
            if request.permit_id in self._waiting
        ]

    def in_order(self) -> list[Request]:
        """Everyone, in the order in which permits go to them."""
        alive = [
            (-tier, key, request)
            for (tier, _), line in self._lines.items()
            for key, request in line.heap
            if request.permit_id in self._waiting
        ]
        return [request for _, _, request in sorted(alive, key=lambda entry: entry[:2])]
