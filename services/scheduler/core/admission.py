"""Who stands next in the permit scan (decision 1 of the core)."""

from collections.abc import Iterable, Mapping

from services.scheduler.core.queue import WaitingRoom
from services.scheduler.core.state import Model, Permit
from services.scheduler.core.values import Request, Tier


def next_ready(tier: Tier, models: Mapping[str, Model], room: WaitingRoom) -> Request | None:
    """The first of a tier whose model serves and has a free place; others stand aside (1a)."""
    heads = [
        head
        for key in room.models()
        if (head := room.head(tier, key)) and _can_take(models.get(key))
    ]
    return min(heads, key=lambda head: head[0])[1] if heads else None


def somebody_else(permits: Iterable[Permit], room: WaitingRoom) -> bool:
    """Something above background runs or waits, so that background may not start (1c)."""
    runs = any(permit.request.tier is not Tier.BACKGROUND for permit in permits)
    return runs or any(room.waiting(tier) for tier in Tier if tier is not Tier.BACKGROUND)


def _can_take(model: Model | None) -> bool:
    if model is None or not model.serves:
        return False
    return model.running < model.facts.places
