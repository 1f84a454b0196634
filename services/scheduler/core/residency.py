"""Which model to load next, and which idle one makes room for it (decision 2 of the core)."""

from collections.abc import Mapping

from services.scheduler.core.queue import WaitingRoom
from services.scheduler.core.state import Model
from services.scheduler.core.values import State, Tier


def most_wanted(
    now_ms: int, models: Mapping[str, Model], room: WaitingRoom
) -> tuple[str, Tier] | None:
    """The COLD model with the most urgent waiter; None while another change is under way (2a)."""
    if any(model.asking or model.starting or model.leaving_for for model in models.values()):
        return None
    wanted = []
    for key in room.models():
        model, first = models.get(key), room.first(key)
        if model is None or first is None:
            continue
        if model.loadable(now_ms) and now_ms >= model.ask_again_ms:
            tier, when, _ = first
            wanted.append((-tier, when, key, tier))
    if not wanted:
        return None
    _, _, key, tier = min(wanted)
    return key, tier


def victim(wanting: str, models: Mapping[str, Model], room: WaitingRoom) -> Model | None:
    """The least recently used idle model that may go for `wanting`'s most urgent waiter (2c)."""
    first = room.first(wanting)
    if first is None:
        return None
    urgency = (-first[0], first[1])
    idle = [
        model
        for key, model in models.items()
        if key != wanting
        and model.facts.state is State.READY
        and model.serves
        and model.running == 0
        and not _more_urgent(key, urgency, room)
    ]
    return min(idle, key=lambda model: model.last_used_ms, default=None)


def _more_urgent(key: str, urgency: tuple[int, tuple[int, int]], room: WaitingRoom) -> bool:
    first = room.first(key)
    return first is not None and (-first[0], first[1]) < urgency
