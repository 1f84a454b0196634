"""What happened in a replay: how each request ended, who lived on the card when, who waited.

The world writes it as it goes; `figures` and `picture` read it. A request that ends twice, or is
granted twice, is a bug of whoever decided, and is raised as one.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from cli.simulation.card import Use
from services.scheduler.core.values import Tier


class End(StrEnum):
    """How a request ended."""

    DONE = "done"
    REFUSED = "refused"
    GAVE_UP = "gave up"
    """Its caller had no more patience."""
    CUT_OFF = "cut off"
    """It ran when its model had to leave, or longer than its lane allows."""


class Phase(Enum):
    """What a model is doing on the card."""

    AWAY = 0
    IDLE = 1
    BUSY = 2
    LOADING = 3
    DRAINING = 4


class Twice(Exception):
    """A request ended or was granted a second time."""


@dataclass(slots=True)
class Fate:
    """One request."""

    model: str
    """The model or family that was asked for."""
    tier: Tier
    key: str
    arrived_ms: int
    granted_ms: int | None = None
    served_by: str = ""
    ended_ms: int = 0
    end: End | None = None
    why: str = ""

    @property
    def waited_ms(self) -> int | None:
        """From its arrival to its grant; None if it never was granted."""
        return None if self.granted_ms is None else self.granted_ms - self.arrived_ms


@dataclass(frozen=True, slots=True)
class Load:
    """A load that ended with the model READY."""

    model: str
    began_ms: int
    ready_ms: int


@dataclass(slots=True)
class Record:
    """Everything that happened."""

    fates: list[Fate] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    """Models whose load was cancelled."""
    evictions: list[tuple[int, str]] = field(default_factory=list)
    phases: dict[str, list[tuple[int, Phase]]] = field(default_factory=dict)
    """Of each model: from when it was what."""
    waiting: list[tuple[int, Tier, int]] = field(default_factory=list)
    """From when how many of a tier waited."""
    memory: list[tuple[int, int, int, int]] = field(default_factory=list)
    """From when how much was resident, transient, foreign."""
    ended_ms: int = 0
    out_of_memory: int = 0
    permit_ms: int = 0
    """Permits in use, summed over time."""
    _queued: Counter[Tier] = field(default_factory=Counter)
    _permits: tuple[int, int] = (0, 0)

    def arrived(self, fate: Fate) -> None:
        """A request begins to wait."""
        self.fates.append(fate)
        self._waits(fate.arrived_ms, fate.tier, 1)

    def granted(self, now_ms: int, fate: Fate, model: str) -> None:
        """It may run, on `model`."""
        if fate.granted_ms is not None or fate.end is not None:
            raise Twice(f"granted again: {fate}")
        fate.granted_ms, fate.served_by = now_ms, model
        self._waits(now_ms, fate.tier, -1)

    def ended(self, now_ms: int, fate: Fate, end: End, why: str = "") -> None:
        """It is over."""
        if fate.end is not None:
            raise Twice(f"ended again as {end.value}: {fate}")
        if fate.granted_ms is None:
            self._waits(now_ms, fate.tier, -1)
        fate.ended_ms, fate.end, fate.why = now_ms, end, why

    def phase(self, now_ms: int, model: str, phase: Phase) -> None:
        """A model turned to something else."""
        past = self.phases.setdefault(model, [(0, Phase.AWAY)])
        if past[-1][1] is not phase:
            past.append((now_ms, phase))

    def used(self, now_ms: int, use: Use) -> None:
        """The card's use changed."""
        self.memory.append((now_ms, use.resident_mib, use.transient_mib, use.foreign_mib))

    def permits(self, now_ms: int, in_use: int) -> None:
        """So many permits are in use from now."""
        since_ms, before = self._permits
        self.permit_ms += before * (now_ms - since_ms)
        self._permits = (now_ms, in_use)

    def close(self, now_ms: int, out_of_memory: int) -> None:
        """The replay is over."""
        self.permits(now_ms, 0)
        self.ended_ms, self.out_of_memory = now_ms, out_of_memory

    def _waits(self, now_ms: int, tier: Tier, change: int) -> None:
        self._queued[tier] += change
        self.waiting.append((now_ms, tier, self._queued[tier]))
