"""What every request for a model passes first, whatever its dialect: bounds, and whose it is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.requests import Request

from chassis.errors import Fault, Reason
from cohabit.common.v1 import common_pb2
from edge.body import Bodies, Room
from edge.keys.caller import Caller, caller_of, fairness_key_of
from edge.tier import TierRule


class Door:
    """Bounds how many requests for a model are in progress."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.inside = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Be one of them until the block ends. Raises Fault when there are too many."""
        if self.inside >= self._limit:
            message = f"{self._limit} requests are open already; try again shortly."
            raise Fault(Reason.SERVICE_UNAVAILABLE, message, retry_after_s=1.0)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1


@dataclass(frozen=True, slots=True)
class Guest:
    """A request that was let in."""

    tier: "common_pb2.Tier.ValueType"
    key: str
    """Fairness key; empty: none."""
    caller: Caller
    room: Room
    """For its body."""

    @property
    def owner(self) -> str:
        """Whose its work is: what is kept of it, in a store or a cache, is for nobody else."""
        return self.caller.name or self.key


@dataclass(frozen=True, slots=True)
class Entrance:
    """One for all routes to models, so that the bounds hold over all of them."""

    door: Door
    bodies: Bodies
    tiers: TierRule

    @contextmanager
    def enter(self, request: Request, max_body: int = 0) -> Iterator[Guest]:
        """Let a request in until the block ends. Raises Fault.

        `max_body`: bytes its body may have; 0: as many as any.
        """
        with self.door.enter(), self.bodies.room(max_body) as room:
            caller = caller_of(request.scope)
            tier = self.tiers.of(request.headers, caller.ceiling)
            yield Guest(tier, fairness_key_of(request), caller, room)
