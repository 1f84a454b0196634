"""Everybody who waits: by name, by model, and in lines. Pure.

Finding the next one costs O(models that are waited for + log n); so does entering and leaving.
"""

from collections.abc import Iterator

from services.scheduler.core.line import Line, Order, Waiter, size_of
from services.scheduler.core.settings import Fairness
from services.scheduler.core.values import Tier

CHILD = max(Tier) + 1
"""Rank of a call on a permit holder's behalf: above all tiers, for its parent's permits wait."""
LOAD_LANE = "\0load"
"""Lane of those who only want a model loaded: they ask for no permit."""


class Bench:
    """The lines of one rank and model, and who came first of them all."""

    __slots__ = ("first", "lines", "model", "rank")

    def __init__(self, rank: int, model: str) -> None:
        self.rank = rank
        self.model = model
        self.lines: dict[tuple[str, int], Line] = {}
        """By lane and size."""
        self.first: Waiter | None = None

    def oldest(self) -> Waiter:
        """Who of those in line came first, whatever their lane or key; there is somebody."""
        first = self.first
        if first is None or first.line is None or first.rank != self.rank:
            waiting = [line.oldest() for line in self.lines.values()]
            first = self.first = min(waiting, key=lambda w: w.order)
        return first


class WaitingRoom:
    """Requests that wait."""

    def __init__(self, fairness: Fairness) -> None:
        self._soft = fairness.soft_inflight
        self._by_name: dict[str, Waiter] = {}
        self._by_model: dict[str, int] = {}
        """How many wait, by model."""
        self.calls: dict[str, dict[str, Waiter]] = {}
        """Who waits to run on a permit holder's behalf, by its permit."""
        self.aside: dict[str, Waiter] = {}
        """Who stands in no line: its permits and place are set aside."""
        self._heard = 0
        self.benches: list[dict[str, Bench]] = [{} for _ in range(CHILD + 1)]
        """By rank, then by model; only where somebody waits."""
        self.counts = [0] * (CHILD + 1)
        """Waiting, by rank."""
        self.pending: dict[tuple[str, str], int] = {}
        """Waiting, by model and key, of those that have one."""
        self.inflight: dict[tuple[str, str], int] = {}
        """Running, by model and key; counted where there is a cap."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Waiter | None:
        """The waiter of that name, if it waits."""
        return self._by_name.get(name)

    def ahead(self, rank: int) -> int:
        """How many wait at `rank` and above: what a newcomer finds before it."""
        return sum(self.counts[rank:])

    def waiting_for(self, model: str) -> int:
        """How many wait for a model."""
        return self._by_model.get(model, 0)

    def of(self, model: str) -> list[Waiter]:
        """Everyone who waits for a model, the most urgent first. O(who waits for it)."""
        found = [waiter for waiter in self.aside.values() if waiter.model == model]
        for benches in self.benches:
            if (bench := benches.get(model)) is not None:
                for line in bench.lines.values():
                    found += line.all()
        found.sort(key=lambda w: (-w.rank, w.order))
        return found

    def models(self) -> set[str]:
        """Models that somebody waits for."""
        return set(self._by_model)

    def add(self, waiter: Waiter, order: Order | None = None) -> None:
        """Let a request wait, in the place that its first arrival gives, or in that of `order`."""
        self._heard += 1
        waiter.order = order or (waiter.request.arrived_ms, self._heard)
        name, model = waiter.request.permit_id, waiter.model
        self._by_name[name] = waiter
        self._by_model[model] = self._by_model.get(model, 0) + 1
        self.counts[waiter.rank] += 1
        client = waiter.client
        if client.key:
            place = (model, client.key)
            self.pending[place] = self.pending.get(place, 0) + 1
        client.waiting += 1
        if parent := waiter.request.parent:
            self.calls.setdefault(parent, {})[name] = waiter
        waiter.waits = True
        self.stand(waiter)

    def remove(self, waiter: Waiter) -> None:
        """A request waits no more."""
        name, model = waiter.request.permit_id, waiter.model
        del self._by_name[name]
        left = self._by_model[model] - 1
        if left:
            self._by_model[model] = left
        else:
            del self._by_model[model]
        self.counts[waiter.rank] -= 1
        client = waiter.client
        if client.key:
            place = (model, client.key)
            self.pending[place] -= 1
            if not self.pending[place]:
                del self.pending[place]
        client.waiting -= 1
        if parent := waiter.request.parent:
            del self.calls[parent][name]
            if not self.calls[parent]:
                del self.calls[parent]
        waiter.waits = False
        if waiter.line is not None:
            self._leave_line(waiter)
        else:
            del self.aside[name]

    def count_in_flight(self, model: str, key: str, by: int) -> None:
        """A request of the key begins or ends to run on the model."""
        count = self.inflight.get((model, key), 0) + by
        if count:
            self.inflight[model, key] = count
        else:
            del self.inflight[model, key]

    def stand(self, waiter: Waiter) -> None:
        """Stand in line, at the place that the order of arrival gives."""
        benches = self.benches[waiter.rank]
        bench = benches.get(waiter.model)
        if bench is None:
            bench = benches[waiter.model] = Bench(waiter.rank, waiter.model)
        lane = LOAD_LANE if waiter.request.load_only else waiter.gate
        size = size_of(waiter.need_mib) if waiter.need_mib else 0
        line = bench.lines.get((lane, size))
        if line is None:
            line = Line(waiter.model, lane, size, self._soft, self.inflight)
            bench.lines[lane, size] = line
        line.add(waiter)
        if bench.first is not None and waiter.order < bench.first.order:
            bench.first = waiter

    def step_aside(self, waiter: Waiter) -> None:
        """Leave the line, but go on waiting."""
        self._leave_line(waiter)
        self.aside[waiter.request.permit_id] = waiter

    def stand_again(self, waiter: Waiter) -> None:
        """Back to the place in line."""
        del self.aside[waiter.request.permit_id]
        self.stand(waiter)

    def _leave_line(self, waiter: Waiter) -> None:
        line = waiter.line
        assert line is not None  # noqa: S101 - who steps aside stands in line
        line.remove(waiter)
        if not line.queues:
            benches = self.benches[waiter.rank]
            bench = benches[waiter.model]
            del bench.lines[line.lane, line.size]
            if not bench.lines:
                del benches[waiter.model]

    def promote(self, waiter: Waiter) -> None:
        """Go up by one tier, keeping the place that the first arrival gives."""
        standing = waiter.line is not None
        if standing:
            self._leave_line(waiter)
        self.counts[waiter.rank] -= 1
        waiter.rank += 1
        self.counts[waiter.rank] += 1
        if standing:  # what is set aside for others is counted in the tier it was taken in
            waiter.runs_as = waiter.rank
            self.stand(waiter)

    def resize(self, waiter: Waiter, need_mib: int) -> None:
        """It needs another amount of memory than was thought."""
        self._leave_line(waiter)
        waiter.need_mib = need_mib
        self.stand(waiter)

    def first(self, model: str) -> Waiter | None:
        """The most urgent waiter of a model: of the highest rank, the first to arrive."""
        for rank in range(CHILD, 0, -1):
            bench = self.benches[rank].get(model)
            if bench is not None:
                return bench.oldest()
        return None

    def first_that_costs(self, model: str) -> Waiter | None:
        """The most urgent waiter of a model in line for permits: no call on a permit holder's
        behalf, nobody who only wants a load."""
        for rank in range(CHILD - 1, 0, -1):
            bench = self.benches[rank].get(model)
            if bench is not None:
                lines = (line for line in bench.lines.values() if line.lane != LOAD_LANE)
                found = [line.oldest() for line in lines]
                if found:
                    return min(found, key=lambda w: w.order)
        return None

    def in_order(self) -> list[Waiter]:
        """Everyone, the most urgent first: rank, then arrival."""
        return sorted(self._by_name.values(), key=lambda w: (-w.rank, w.order))
