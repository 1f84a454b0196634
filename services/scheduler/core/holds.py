"""Lanes that outside coordinators keep closed for a while. Pure."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Holds:
    """Who holds which lane until when."""

    lanes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Until when, by lane and holder; a lane that is here is closed."""

    def hold(self, lane: str, holder: str, until_ms: int) -> int:
        """Hold a lane, or hold it longer; a second hold never shortens the first. Until when."""
        holders = self.lanes.setdefault(lane, {})
        longest = holders[holder] = max(until_ms, holders.get(holder, 0))
        return longest

    def release(self, lane: str, holder: str) -> bool:
        """Let go; whether there was something to let go of."""
        holders = self.lanes.get(lane, {})
        if holders.pop(holder, None) is None:
            return False
        if not holders:
            del self.lanes[lane]
        return True

    def until(self, lane: str, holder: str) -> int:
        """When a hold expires; 0: there is none."""
        return self.lanes.get(lane, {}).get(holder, 0)

    def closed(self, lane: str) -> bool:
        """Somebody holds the lane."""
        return lane in self.lanes

    def of(self, lane: str) -> list[str]:
        """Who holds a lane."""
        return list(self.lanes.get(lane, ()))

    def all(self) -> list[tuple[str, str, int]]:
        """Every hold: lane, holder, expiry."""
        return [(lane, who, at) for lane, held in self.lanes.items() for who, at in held.items()]

    def __bool__(self) -> bool:
        return bool(self.lanes)
