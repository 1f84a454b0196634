"""How much each key does: requests a minute, and at once. Pure: event and now in, decision out.

A key's bucket holds as many requests as it may make in a minute and is filled evenly, so that a
client may send a burst after a pause and keeps its mean. A refused request takes nothing.
"""

from dataclasses import dataclass
from typing import Literal

_MINUTE_S = 60.0
_ONE = 1 - 1e-9
"""A request's worth, for who waited exactly as long as told: fractions do not add up to one."""
_RETRY_S = 1.0
"""When to come back to a key whose requests are all in progress: nobody knows when one ends."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a key may do; None: as much as anybody."""

    requests_per_minute: int | None = None
    concurrent: int | None = None

    def __bool__(self) -> bool:
        return self.requests_per_minute is not None or self.concurrent is not None


UNBOUNDED = Bounds()


@dataclass(frozen=True, slots=True)
class Entered:
    """The request may go on; it must be told when it leaves."""

    remaining: int
    """Requests that may follow at once; 0 without a limit a minute."""
    reset_s: float
    """Until the bucket is full again."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The key does too much."""

    of: Literal["minute", "concurrent"]
    retry_after_s: float
    reset_s: float = 0.0


@dataclass(slots=True)
class _Account:
    filled: float
    """Requests that the bucket held at `at_s`."""
    at_s: float
    running: int = 0


class Limits:
    """All keys' accounts. One that is as if it were new is forgotten, a minute later at most."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._sweep_at_s = 0.0

    def __len__(self) -> int:
        return len(self._accounts)

    def enter(self, name: str, bounds: Bounds, now_s: float) -> Entered | Refused:
        """A request of the key `name`, whose bounds are these as of now."""
        self._sweep(now_s)
        most = float(bounds.requests_per_minute or 0)
        account = self._accounts.get(name) or _Account(most, now_s)
        _fill(account, most, now_s)
        if bounds.concurrent is not None and account.running >= bounds.concurrent:
            return Refused("concurrent", _RETRY_S, _until(most, account, most))
        if bounds.requests_per_minute is not None:
            if account.filled < _ONE:
                return Refused("minute", _until(1, account, most), _until(most, account, most))
            account.filled -= 1
        account.running += 1
        self._accounts[name] = account
        return Entered(int(account.filled), _until(most, account, most))

    def leave(self, name: str) -> None:
        """A request that entered is over."""
        self._accounts[name].running -= 1

    def _sweep(self, now_s: float) -> None:
        # A bucket is full after a minute without requests, whatever its size.
        if now_s < self._sweep_at_s:
            return
        self._sweep_at_s = now_s + _MINUTE_S
        for name, account in list(self._accounts.items()):
            if not account.running and now_s - account.at_s >= _MINUTE_S:
                del self._accounts[name]


def _fill(account: _Account, most: float, now_s: float) -> None:
    more = (now_s - account.at_s) * most / _MINUTE_S
    account.filled, account.at_s = min(most, account.filled + more), now_s


def _until(wanted: float, account: _Account, most: float) -> float:
    """Seconds until the bucket holds so many."""
    return max(0.0, (wanted - account.filled) * _MINUTE_S / most) if most else 0.0
