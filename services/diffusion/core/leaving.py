"""What to do about a picture that nobody waits for any more. Pure.

The native library cannot be stopped. Either the picture is left to finish and dropped, or the
process is ended and another brought up. The first costs the work left, the second a reload. Where
the work left is not known, or was misjudged, it is waited for as long as a reload takes and no
longer: that way at most twice the smaller of both is spent, whatever the truth (the rule of renting
skis before buying them: Karlin et al. 1988, "Competitive snoopy caching").
"""

from enum import Enum


class Leave(Enum):
    """How a cancelled picture leaves the device."""

    FINISH = "finish"
    """It is left to finish, and dropped."""
    RENEW = "renew"
    """The process ends, and a warm one takes its place."""


def decide(left_s: float | None, waited_s: float, reload_s: float) -> Leave:
    """By the work left (None: unknown), the wait so far, and what a reload takes."""
    if waited_s >= reload_s or (left_s is not None and left_s > reload_s):
        return Leave.RENEW
    return Leave.FINISH
