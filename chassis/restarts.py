"""What to do about a child process that has ended by itself. Pure: its parent waits and acts."""

from dataclasses import dataclass

from chassis.backoff import Backoff

BACKOFF = Backoff(first_s=0.2, factor=2.0, most_s=10.0)
STEADY_S = 30.0
"""A service that was up this long is forgiven its earlier ends."""
CONFIGURATION_EXIT = 2
"""Exit status of a service that cannot use its configuration."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after `delay_s`; it has now failed `failures` times in a row."""

    delay_s: float
    failures: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop everything: only a person can mend this."""


Decision = Restart | GiveUp


def decide(
    exit_code: int,
    up_s: float,
    failures_before: int,
    backoff: Backoff = BACKOFF,
    *,
    again: bool = False,
) -> Decision:
    """What to do after an exit that nobody asked for, `up_s` seconds after the start.

    1. A refused configuration gives up, unless the program has run before (`again`): then its file
       has been changed since, and may be mended.
    2. A service that ran for `STEADY_S` begins the row of failures anew.
    3. The delay grows with the row.
    """
    if exit_code == CONFIGURATION_EXIT and not again:
        return GiveUp()
    failures = 1 if up_s >= STEADY_S else failures_before + 1
    return Restart(backoff.delay_s(failures), failures)


def ending(exit_code: int) -> str:
    """An exit status in words; negative: a signal, as subprocess has it."""
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with {exit_code}"
