"""How an engine process allocates: freed memory is kept while work goes on, and given back after.

A run of a network allocates and frees hundreds of megabytes. By itself glibc maps and unmaps each
of the large pieces, and touching them anew takes a third of the time of U²-Net's small version; the
runtime's arena is as fast as this, but never gives anything back (548 MiB held after one picture,
where this holds 76). Other C libraries are left as they are.
"""

import ctypes
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_NEVER = 2**31 - 1
_LARGE_BYTES = 1 << 30


def keep_freed() -> bool:
    """From now on freed memory stays in the process, in one heap. Call it before anything large
    is imported. False: this C library has no such settings.
    """
    libc = _libc()
    if libc is None:
        return False
    settings = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGE_BYTES), (_TRIM_THRESHOLD, _NEVER))
    return all(libc.mallopt(name, value) == 1 for name, value in settings)


def give_back() -> None:
    """Return to the kernel whatever is free. Takes tens of milliseconds after a large run."""
    libc = _libc()
    if libc is not None:
        libc.malloc_trim(0)


def _libc() -> Any:
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
