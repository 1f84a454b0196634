"""What memory an engine process holds, as its parent is told."""

from collections.abc import Callable
from typing import NamedTuple

import psutil

MUCH_MIB = 32
"""A change by more than this is told at once; less is told every few seconds."""
_BYTES = 1024 * 1024


class Usage(NamedTuple):
    """Memory on the model's device, in MiB."""

    materialised_mib: int = 0
    """All that is held."""
    transient_mib: int = 0
    """What of it belongs to running requests."""

    @property
    def resident_mib(self) -> int:
        """What is held without any request."""
        return max(0, self.materialised_mib - self.transient_mib)

    def without(self, mib: int) -> "Usage":
        """As if `mib` of what is held without any request were not there."""
        return Usage(self.materialised_mib - min(mib, self.resident_mib), self.transient_mib)

    def is_far_from(self, other: "Usage") -> bool:
        """Whether a lease that is renewed with one of them needs to hear the other."""
        return any(abs(a - b) > MUCH_MIB for a, b in zip(self, other, strict=True))


ReadUsage = Callable[[], tuple[int, int]]
"""(materialised_mib, transient_mib) now; cheap, for it is asked ten times a second."""


def process_usage() -> tuple[int, int]:
    """The resident set of this process, of which nothing is known to be transient."""
    return psutil.Process().memory_info().rss // _BYTES, 0
