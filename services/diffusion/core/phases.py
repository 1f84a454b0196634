"""Which phase of a picture the native library is in. Pure.

It tells of steps, of tiles and of files it reads through one and the same callback, and of what
they are in its log alone; so that is read, too. Lines that are not known change nothing.
"""

from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    """What is worked at; values are those of cohabit.diffusion.v1.GenerateResponse.Phase."""

    CONDITION = 1
    DENOISE = 2
    DECODE = 3
    ENCODE = 4


_BEGINS = (
    ("generating image:", Phase.DENOISE),
    ("sampling completed", Phase.DECODE),
)
"""How the line of the log begins (behind its place in the source) that tells of a phase."""


@dataclass(slots=True)
class PhaseReader:
    """Follows one picture."""

    phase: Phase = Phase.CONDITION
    spent_s: dict[Phase, float] = field(default_factory=dict)
    """By phase, up to the last change."""
    began_s: float = 0.0
    """When the phase began."""

    def told(self, line: str, now_s: float) -> bool:
        """Read a line of the log; whether another phase begins with it."""
        said = line.partition(" - ")[2]
        for words, phase in _BEGINS:
            if said.startswith(words) and phase is not self.phase:
                self.turn(phase, now_s)
                return True
        return False

    def turn(self, phase: Phase, now_s: float) -> None:
        """`phase` begins."""
        spent_s = self.spent_s.get(self.phase, 0.0)
        self.spent_s[self.phase] = spent_s + max(0.0, now_s - self.began_s)
        self.phase, self.began_s = phase, now_s
