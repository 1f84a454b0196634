"""The permits that are out, and those that are over and must not come back."""

from collections import OrderedDict
from dataclasses import dataclass, field

from services.scheduler.core.alarms import Alarm, Alarms
from services.scheduler.core.state import Permit

_REMEMBERED = 10_000


@dataclass(slots=True)
class PermitBook:
    """Counts the budget, and sets and cancels the deadlines of permits."""

    alarms: Alarms
    out: dict[str, Permit] = field(default_factory=dict)
    in_use: int = 0
    _over: OrderedDict[str, None] = field(default_factory=OrderedDict)

    def hold(self, permit: Permit, ends_ms: int, use_by_ms: int | None = None) -> None:
        """Let a permit out: it may run until `ends_ms`, and lapses unused at `use_by_ms`."""
        name = permit.request.permit_id
        self.out[name] = permit
        self.in_use += permit.cost
        self.alarms.set(ends_ms, Alarm.RAN, name)
        if use_by_ms is not None:
            self.alarms.set(use_by_ms, Alarm.UNUSED, name)

    def release(self, permit: Permit) -> None:
        """Take a permit back. A report of it that comes late is known by `is_over`."""
        name = permit.request.permit_id
        del self.out[name]
        self.in_use -= permit.cost
        self.alarms.cancel(Alarm.RAN, name)
        self.alarms.cancel(Alarm.UNUSED, name)
        self._over[name] = None
        if len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)

    def is_over(self, permit_id: str) -> bool:
        """It was out, and is not any more (as far as is remembered)."""
        return permit_id in self._over
