"""What every machine of this folder shares: how many histories, and how one is told when it fails.

`COHABIT_DEEP=1` (`make test-deep`) asks for the many; a plain `make test` is content with a few.
A history that breaks a rule fails with its whole transcript: every event, and below it what the
core decided.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, settings

from services.scheduler.core.values import Effect

DEEP = bool(os.environ.get("COHABIT_DEEP"))

PATIENCE = pytest.mark.timeout(3_600 if DEEP else 300)
"""For every module here: many histories take long."""


def histories(usual: int, deep: int, steps: int = 50) -> settings:
    """How many random histories a machine plays, and how long they are at most.

    The usual ones are the same each time (derandomized): a run that passes passes again. The
    deep ones are new each time.
    """
    return settings(
        max_examples=deep if DEEP else usual,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not DEEP,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


class Violation(AssertionError):
    """A rule is broken; the text ends with the history that broke it."""


@dataclass
class Transcript:
    """What happened so far, for people."""

    lines: list[str] = field(default_factory=list)

    def event(self, now_ms: int, text: str) -> None:
        """Something was told to the core."""
        self.lines.append(f"{now_ms:>8}  {text}")

    def effects(self, effects: Iterable[Effect]) -> None:
        """What it decided."""
        self.lines += [f"{'':>8}    -> {effect}" for effect in effects]

    def broken(self, rule: str) -> Violation:
        """The exception to raise."""
        return Violation("\n".join(["", rule, "", "The history:", *self.lines, "", rule]))
