"""The house's clock: milliseconds since the Unix epoch that never jump.

It is read off the wall once, when the process starts, and runs by the monotonic clock from then on:
deadlines must outlive a clock that is set. Cores are given its reading, they never take one.
"""

import time

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


def steady_ms() -> int:
    """Milliseconds since the Unix epoch, as this process counts them."""
    return (_OFFSET_NS + time.monotonic_ns()) // 1_000_000
