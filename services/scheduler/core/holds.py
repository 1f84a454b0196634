"""Lanes that outside coordinators keep closed for a while. Pure."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Holds:
    """Who holds which lane until when."""

    _lanes: dict[str, dict[str, int]] = field(default_factory=dict)

    def hold(self, lane: str, holder: str, until_ms: int) -> int:
        """Hold a lane, or hold it longer; a second hold never shortens the first. Until when."""
        holders = self._lanes.setdefault(lane, {})
        longest = holders[holder] = max(until_ms, holders.get(holder, 0))
        return longest

    def release(self, lane: str, holder: str) -> bool:
        """Let go; whether there was something to let go of."""
        holders = self._lanes.get(lane, {})
        if holders.pop(holder, None) is None:
            return False
        if not holders:
            del self._lanes[lane]
        return True

    def until(self, lane: str, holder: str) -> int:
        """When a hold expires; 0: there is none."""
        return self._lanes.get(lane, {}).get(holder, 0)

    def closed(self, lane: str) -> bool:
        """Somebody holds the lane."""
        return lane in self._lanes

    def of(self, lane: str) -> list[str]:
        """Who holds a lane."""
        return list(self._lanes.get(lane, ()))

    def all(self) -> list[tuple[str, str, int]]:
        """Every hold: lane, holder, expiry."""
        return [(lane, who, at) for lane, held in self._lanes.items() for who, at in held.items()]

    def __bool__(self) -> bool:
        return bool(self._lanes)
