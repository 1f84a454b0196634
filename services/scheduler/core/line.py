"""One line of waiting requests: FIFO within each client, the client with the least first. Pure."""

import heapq
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.scheduler.core.clients import Client
    from services.scheduler.core.state import Instance
    from services.scheduler.core.values import Lane, Request

_SLACK = 16

Order = tuple[int, int]
"""First arrival, then the order in which we heard of it."""


def size_of(need_mib: int) -> int:
    """A size of transient memory: rounded up to three binary digits, so that there are few."""
    step = 1 << max(0, need_mib.bit_length() - 3)
    return -(-need_mib // step) * step


class Waiter:
    """A request while it waits."""

    __slots__ = (
        "asked_leave_mib",
        "client",
        "cost",
        "gate",
        "instance",
        "lane",
        "line",
        "model",
        "need_mib",
        "order",
        "rank",
        "request",
        "runs_as",
        "waits",
    )

    def __init__(
        self,
        request: "Request",
        model: str,
        rank: int,
        lane: "Lane",
        cost: int,
        need_mib: int,
        client: "Client",
    ) -> None:
        self.request = request
        self.model = model
        """The key that will serve it: a twin of what was asked for, perhaps."""
        self.rank = rank
        """Its tier, after any promotion; above all tiers for a call on a permit holder's behalf."""
        self.order: Order = (0, 0)
        self.lane = lane
        self.gate = lane.name
        """The lane whose hold holds it up; empty: none."""
        self.cost = cost
        self.need_mib = need_mib
        """The least of transient memory that it can do with."""
        self.client = client
        self.line: Line | None = None
        """None: it stands aside, or waits no more."""
        self.waits = False
        self.asked_leave_mib = 0
        """What its question about memory left for the more urgent."""
        self.instance: Instance | None = None
        """Where its place is set aside, with its permits, while its memory is asked for."""
        self.runs_as = rank
        """The rank that its run counts in: a child's is its parent's."""

    @property
    def name(self) -> str:
        """Of the request."""
        return self.request.permit_id


class _Queue:
    """The waiters of one client in one line. Most come in their order and stand in a row; who comes
    late (a request resumed after a restart) stands in a heap beside it."""

    __slots__ = ("_late", "_row", "first", "standing")

    def __init__(self, waiter: Waiter) -> None:
        self._row: deque[Waiter] = deque((waiter,))
        self._late: list[tuple[int, int, int, Waiter]] = []
        """By order, then by what is different of any two that are here."""
        self.first = waiter
        """The oldest that stands here."""
        self.standing = 1

    def add(self, waiter: Waiter) -> None:
        row = self._row
        if not row or waiter.order > row[-1].order:
            row.append(waiter)
        else:
            heapq.heappush(self._late, (*waiter.order, id(waiter), waiter))
        self.standing += 1
        if waiter.order < self.first.order:
            self.first = waiter

    def sweep(self, line: "Line") -> None:
        """Somebody has left; somebody is left."""
        if len(self._row) + len(self._late) > 2 * self.standing + _SLACK:
            self._row = deque(waiter for waiter in self._row if waiter.line is line)
            self._late = [entry for entry in self._late if entry[3].line is line]
            heapq.heapify(self._late)
        if self.first.line is line:
            return
        row, late = self._row, self._late
        while row and row[0].line is not line:
            row.popleft()
        while late and late[0][3].line is not line:
            heapq.heappop(late)
        if not late or (row and row[0].order < late[0][:2]):
            self.first = row[0]
        else:
            self.first = late[0][3]

    def all(self) -> list[Waiter]:
        return [*self._row, *(entry[3] for entry in self._late)]


class Line:
    """Waiters of one rank, model, lane and size. Whoever is in no line stands aside.

    With one client it is its queue. With several a heap of clients stands before their queues. What
    it says of a client may be too good, and is put right when it comes to the front;
    a change for the better is entered at once.
    """

    __slots__ = ("_heap", "inflight", "lane", "model", "queues", "size", "soft")

    def __init__(
        self, model: str, lane: str, size: int, soft: int, inflight: dict[tuple[str, str], int]
    ) -> None:
        self.model = model
        self.lane = lane
        self.size = size
        """Of the transient memory that its waiters need: see `size_of`."""
        self.soft = soft
        self.inflight = inflight
        self.queues: dict[Client, _Queue] = {}
        """Of the clients that wait here; none: nobody does."""
        self._heap: list[tuple[bool, float, int, int, Client]] = []

    def add(self, waiter: Waiter) -> None:
        """Put a waiter in its place."""
        client = waiter.client
        queue = self.queues.get(client)
        waiter.line = self
        if queue is not None:
            queue.add(waiter)
        else:
            queue = self.queues[client] = _Queue(waiter)
            client.lines[self] = None
            if len(self.queues) == 2:
                other = next(iter(self.queues))
                self._push(other)
        if len(self.queues) > 1 and queue.first is waiter:
            self._push(client)

    def remove(self, waiter: Waiter) -> None:
        """Take a waiter out."""
        client = waiter.client
        queue = self.queues[client]
        waiter.line = None
        queue.standing -= 1
        if not queue.standing:
            del self.queues[client]
            del client.lines[self]
            if len(self.queues) <= 1:
                self._heap = []
            return
        queue.sweep(self)

    def refresh(self, client: "Client") -> None:
        """The client's virtual time, or what it has in flight, has changed."""
        if len(self.queues) > 1:
            self._push(client)

    def head(self) -> Waiter:
        """Who is next; there is somebody."""
        if len(self.queues) == 1:
            (only,) = self.queues.values()
            return only.first
        heap = self._heap
        while True:
            entry = heap[0]
            client = entry[4]
            present = self._entry(client)
            if entry == present:
                return self.queues[client].first
            if present is not None and entry < present:
                heapq.heapreplace(heap, present)
            else:
                heapq.heappop(heap)

    def head_before(self, before: Order) -> Waiter | None:
        """Who is next of those who came before that; None: nobody did. O(clients)."""
        clients = [c for c, queue in self.queues.items() if queue.first.order < before]
        entries = [entry for client in clients if (entry := self._entry(client)) is not None]
        return self.queues[min(entries)[4]].first if entries else None

    def all(self) -> list[Waiter]:
        """Everybody, in no order."""
        known = (waiter for queue in self.queues.values() for waiter in queue.all())
        return [waiter for waiter in known if waiter.line is self]

    def oldest(self) -> Waiter:
        """Who came first, whoever it belongs to; there is somebody. O(clients)."""
        return min((queue.first for queue in self.queues.values()), key=lambda w: w.order)

    def capped(self, client: "Client") -> bool:
        """The client has as many requests in flight on the model as it may while others wait."""
        return self.soft > 0 and self.inflight.get((self.model, client.key), 0) >= self.soft

    def _push(self, client: "Client") -> None:
        entry = self._entry(client)
        if entry is not None:
            heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self.queues) + _SLACK:
            self._heap = [e for c in self.queues if (e := self._entry(c)) is not None]
            heapq.heapify(self._heap)

    def _entry(self, client: "Client") -> "tuple[bool, float, int, int, Client] | None":
        queue = self.queues.get(client)
        if queue is None:
            return None
        arrived, heard = queue.first.order
        capped = self.soft > 0 and self.capped(client)
        return (capped, client.virtual_ms, arrived, heard, client)
