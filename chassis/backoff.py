"""Growing delays between attempts. Pure: the caller waits."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay before attempt n + 1 is `first_s * factor ** n`, at most `most_s`."""

    first_s: float
    factor: float
    most_s: float

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after `failures` failures in a row (0: none)."""
        if failures <= 0:
            return 0.0
        # The exponent is bounded so that a long outage cannot overflow a float.
        return min(self.most_s, self.first_s * self.factor ** min(failures - 1, 64))


RECONNECT = Backoff(first_s=0.05, factor=2.0, most_s=1.0)
"""For streams between services that should come back by themselves."""
