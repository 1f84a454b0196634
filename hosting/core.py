"""The life of an instance as a table, the failures of a model, and what a load finds. Pure.

    LOADING ──ready──▶ READY ──drain──▶ DRAINING
       │    ◀──renew─────┘  ◀──resume──────┘ │
       ├──stopped──▶ COLD ◀──────stopped─────┤
       └────fail──▶ FAILED ◀──────fail───────┘

An instance is born LOADING and leaves its model's set when it is COLD or FAILED. The model is in
the best state among its instances; without any it is COLD, or FAILED when the last that left had
failed.

A load that fails cools the model down at once and longer each time. A crash of an engine that was
serving may be chance: the first one in a minute costs no delay, the next ones grow like failed
loads. Instances that serve go on meanwhile; it is further ones that have to wait.

An engine that ends itself to be rid of work which cannot be cancelled has not failed: it renews.
Its instance keeps its lease and loads again, and if that fails, it is a load that has failed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType


class State(Enum):
    """Where an instance or a model is in its life; values are those of models.v1.ModelState."""

    COLD = 1
    LOADING = 2
    READY = 3
    DRAINING = 4
    FAILED = 5


class Step(Enum):
    """What can happen to an instance."""

    READY = auto()
    DRAIN = auto()
    RESUME = auto()
    RENEW = auto()
    STOPPED = auto()
    FAIL = auto()


TRANSITIONS: Mapping[tuple[State, Step], State] = MappingProxyType(
    {
        (State.LOADING, Step.READY): State.READY,
        (State.LOADING, Step.FAIL): State.FAILED,
        (State.LOADING, Step.STOPPED): State.COLD,
        (State.READY, Step.DRAIN): State.DRAINING,
        (State.READY, Step.RENEW): State.LOADING,
        (State.READY, Step.FAIL): State.FAILED,
        (State.READY, Step.STOPPED): State.COLD,
        (State.DRAINING, Step.RESUME): State.READY,
        (State.DRAINING, Step.STOPPED): State.COLD,
        (State.DRAINING, Step.FAIL): State.FAILED,
    }
)

FIRST_DELAY_MS = 1_000
MOST_DELAY_MS = 60_000
STABLE_MS = 60_000
"""An engine that served this long has shown that its model works."""

_BEST_FIRST = (State.READY, State.LOADING, State.DRAINING)


class IllegalStep(Exception):
    """A step that the table does not have: a bug of the caller."""


@dataclass(slots=True)
class Life:
    """The state of one instance; times are milliseconds since the Unix epoch."""

    state: State = State.LOADING
    ready_since_ms: int | None = None

    def take(self, step: Step, now_ms: int) -> None:
        """Go where the table says. Raises IllegalStep."""
        try:
            self.state = TRANSITIONS[self.state, step]
        except KeyError:
            raise IllegalStep(f"{step.name} in {self.state.name}") from None
        if step is Step.READY:
            self.ready_since_ms = now_ms
        if step is Step.RENEW:
            self.ready_since_ms = None

    def served_ms(self, now_ms: int) -> int | None:
        """How long ago its load was done; None: it never was, or it loads again."""
        return None if self.ready_since_ms is None else now_ms - self.ready_since_ms


@dataclass(slots=True)
class Record:
    """The failures of one model, over all its instances; times as in Life."""

    failures: int = 0
    retry_at_ms: int = 0
    reason: str = ""
    """Of the last failure, unless the model has been loaded or unloaded since."""
    message: str = ""

    def add(self, reason: str, message: str, served_ms: int | None, now_ms: int) -> None:
        """An instance has failed, `served_ms` after it was READY (None: its load failed)."""
        if served_ms is not None and served_ms >= STABLE_MS:
            self.failures = 0
        grace = 0 if served_ms is None else 1
        self.failures += 1
        self.retry_at_ms = now_ms + _delay_ms(self.failures - grace)
        self.reason, self.message = reason, message

    def clear(self) -> None:
        """The last failure is of no interest any more; the next delay grows all the same."""
        self.retry_at_ms = 0
        self.reason = self.message = ""

    def cooling_ms(self, now_ms: int) -> int:
        """Milliseconds until a load may be tried; 0 when it may be now."""
        return max(0, self.retry_at_ms - now_ms)


def model_state(instances: Iterable[State], record: Record) -> State:
    """The state of a model with such instances."""
    found = set(instances)
    for state in _BEST_FIRST:
        if state in found:
            return state
    return State.FAILED if record.reason else State.COLD


def _delay_ms(failures: int) -> int:
    if failures <= 0:
        return 0
    return min(MOST_DELAY_MS, FIRST_DELAY_MS << min(failures - 1, 20))


@dataclass(frozen=True, slots=True)
class Seen:
    """One instance as a load finds it."""

    state: State
    leaving: bool = False
    """It is being stopped: nothing can be joined there any more."""
    own: bool = False
    """It lives on the lease that the load brings."""


class Answer(Enum):
    """What becomes of a load."""

    START = auto()
    """Another instance is started on the lease."""
    JOIN = auto()
    """It waits for an instance that there is."""
    AWAIT_END = auto()
    """It looks again when an instance has gone."""
    BUSY = auto()
    """It is refused for now."""


def answer_load(instances: Sequence[Seen], most: int) -> tuple[Answer, int]:
    """The answer, and the index of the instance that it is about (-1: none).

    1. A load that brings the lease of an instance is the same load again: it belongs there.
    2. There may be another instance: it is started.
    3. There may not, but one is leaving: it is waited for.
    4. One that is READY, or else LOADING, will do.
    5. All are draining.
    """
    for at, one in enumerate(instances):  # 1
        if one.own:
            if one.leaving:
                return Answer.AWAIT_END, at
            return (Answer.BUSY if one.state is State.DRAINING else Answer.JOIN), at
    if len(instances) < most:  # 2
        return Answer.START, -1
    for at, one in enumerate(instances):  # 3
        if one.leaving:
            return Answer.AWAIT_END, at
    for wanted in (State.READY, State.LOADING):  # 4
        for at, one in enumerate(instances):
            if one.state is wanted:
                return Answer.JOIN, at
    return Answer.BUSY, -1  # 5
