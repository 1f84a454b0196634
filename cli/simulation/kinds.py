"""The choices of the command line, apart from what they choose: `--help` needs no more."""

from enum import StrEnum


class Rival(StrEnum):
    """Whom to compare the scheduler with."""

    FIFO = "fifo"


class Kind(StrEnum):
    """What sort of trace."""

    STEADY = "steady"
    BURSTY = "bursty"
    ADVERSARIAL = "adversarial"
    DIURNAL = "diurnal"
