"""The permits that are out, what they cost together, and those that must not come back. Pure."""

from collections.abc import Iterator

from services.scheduler.core.state import Permit
from services.scheduler.core.values import Tier

_REMEMBERED = 10_000
_BACKGROUND = Tier.BACKGROUND


class PermitBook:
    """Counts the budget."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.out: dict[str, Permit] = {}
        self.in_use = 0
        """Permits out and set aside; more than there are only after a restart found them."""
        self.foreground = 0
        """Requests above background that run, or whose permits are set aside."""
        self._over: set[str] = set()
        """Those that ended last, …"""
        self._before: set[str] = set()
        """… and as many before them."""

    @property
    def free(self) -> int:
        """Permits that may be given out."""
        return self.total - self.in_use

    def take(self, cost: int, rank: int) -> None:
        """Count a request that begins, or whose permits are set aside."""
        self.in_use += cost
        if rank != _BACKGROUND:
            self.foreground += 1

    def give_back(self, cost: int, rank: int) -> None:
        """Undo `take`."""
        self.in_use -= cost
        if rank != _BACKGROUND:
            self.foreground -= 1

    def hold(self, permit: Permit) -> None:
        """Let out a permit that has been taken."""
        self.out[permit.request.permit_id] = permit
        if (parent := permit.parent) is not None:
            parent.children = (parent.children or set()) | {permit}

    def release(self, permit: Permit) -> Permit | None:
        """Take a permit back. A report of it that comes late is known by `is_over`.

        What runs on its behalf keeps its permits busy: one of its children inherits the cost, and
        is returned.
        """
        name = permit.request.permit_id
        permit.over = True
        del self.out[name]
        if permit.parent is not None and permit.parent.children:
            permit.parent.children.discard(permit)
        heir = _heir_of(permit) if permit.children else None
        self.give_back(0 if heir is not None else permit.cost, permit.rank)
        self._over.add(name)
        if len(self._over) > _REMEMBERED:
            self._before, self._over = self._over, set()
        return heir

    def lanes_of(self, permit_id: str) -> set[str]:
        """Those that a permit and the ones it runs under are in."""
        return {permit.lane for permit in self._chain(permit_id)}

    def models_of(self, permit_id: str) -> tuple[str, ...]:
        """Those that a permit and the ones it runs under run on."""
        return tuple(permit.model for permit in self._chain(permit_id))

    def _chain(self, permit_id: str) -> Iterator[Permit]:
        permit = self.out.get(permit_id)
        while permit is not None:
            yield permit
            permit = permit.parent

    def is_over(self, permit_id: str) -> bool:
        """It was out, and is not any more (as far as is remembered)."""
        return permit_id in self._over or permit_id in self._before


def _heir_of(permit: Permit) -> Permit:
    """The child that takes its place: its cost is the heir's, its other children too."""
    children = permit.children or set()
    heir = min(children, key=lambda child: child.request.permit_id)
    heir.parent = permit.parent
    for child in children - {heir}:
        child.parent = heir
    heir.children = (heir.children or set()) | (children - {heir})
    if heir.parent is not None:
        heir.parent.children = (heir.parent.children or set()) | {heir}
    heir.cost += permit.cost
    return heir
