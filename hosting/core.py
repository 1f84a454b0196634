"""The life of a model as a table, and how long a failed one must cool down. Pure.

    COLD ──load──▶ LOADING ──ready──▶ READY ──drain──▶ DRAINING ──stopped──▶ COLD
                      │                 │  ◀──resume──────┘ │
                      └───fail──▶ FAILED ◀──────fail────────┘        FAILED ──load──▶ LOADING

A load that fails cools down at once and longer each time. A crash of an engine that was serving
may be chance: the first one in a minute costs no delay, the next ones grow like failed loads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType


class State(Enum):
    """Where a model is in its life; values are those of cohabit.models.v1.ModelState."""

    COLD = 1
    LOADING = 2
    READY = 3
    DRAINING = 4
    FAILED = 5


class Step(Enum):
    """What can happen to it."""

    LOAD = auto()
    READY = auto()
    DRAIN = auto()
    RESUME = auto()
    STOPPED = auto()
    FAIL = auto()


TRANSITIONS: Mapping[tuple[State, Step], State] = MappingProxyType(
    {
        (State.COLD, Step.LOAD): State.LOADING,
        (State.FAILED, Step.LOAD): State.LOADING,
        (State.LOADING, Step.READY): State.READY,
        (State.LOADING, Step.FAIL): State.FAILED,
        (State.LOADING, Step.STOPPED): State.COLD,
        (State.READY, Step.DRAIN): State.DRAINING,
        (State.READY, Step.FAIL): State.FAILED,
        (State.READY, Step.STOPPED): State.COLD,
        (State.DRAINING, Step.RESUME): State.READY,
        (State.DRAINING, Step.STOPPED): State.COLD,
        (State.DRAINING, Step.FAIL): State.FAILED,
        (State.FAILED, Step.STOPPED): State.COLD,
    }
)

FIRST_DELAY_MS = 1_000
MOST_DELAY_MS = 60_000
STABLE_MS = 60_000
"""An engine that served this long has shown that its model works."""


class IllegalStep(Exception):
    """A step that the table does not have: a bug of the caller."""


@dataclass(slots=True)
class Life:
    """State of one model with its failures; times are milliseconds since the Unix epoch."""

    state: State = State.COLD
    failures: int = 0
    retry_at_ms: int = 0
    ready_since_ms: int = 0
    reason: str = ""
    message: str = ""

    def take(self, step: Step, now_ms: int) -> None:
        """Go where the table says. Raises IllegalStep. Failing goes through `fail`."""
        self._move(step)
        if step is Step.READY:
            self.ready_since_ms = now_ms
            self.reason = self.message = ""

    def fail(self, reason: str, message: str, now_ms: int) -> None:
        """Enter FAILED, with the time before which no load may be tried again."""
        served = self.state in (State.READY, State.DRAINING)
        self._move(Step.FAIL)
        if served and now_ms - self.ready_since_ms >= STABLE_MS:
            self.failures = 0
        grace = 1 if served else 0
        self.failures += 1
        self.retry_at_ms = now_ms + _delay_ms(self.failures - grace)
        self.reason, self.message = reason, message

    def cooling_ms(self, now_ms: int) -> int:
        """Milliseconds until a load may be tried; 0 when it may be now."""
        return max(0, self.retry_at_ms - now_ms) if self.state is State.FAILED else 0

    def _move(self, step: Step) -> None:
        try:
            self.state = TRANSITIONS[self.state, step]
        except KeyError:
            raise IllegalStep(f"{step.name} in {self.state.name}") from None


def _delay_ms(failures: int) -> int:
    if failures <= 0:
        return 0
    return min(MOST_DELAY_MS, FIRST_DELAY_MS << min(failures - 1, 20))
