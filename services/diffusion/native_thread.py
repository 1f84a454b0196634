"""The one thread that a native library is called from.

Its stack is large: the library's tokenizers take a prompt apart by recursion, a frame or more for
every character.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_STACK_BYTES = 256 << 20
"""Address space; what is not used costs nothing."""

P = ParamSpec("P")
T = TypeVar("T")


class NativeThread:
    """Calls run in the order they are given."""

    def __init__(self) -> None:
        before = threading.stack_size(_STACK_BYTES)
        try:
            self._pool = ThreadPoolExecutor(1, "native")
            self._pool.submit(int).result()  # starts it, with that stack
        finally:
            threading.stack_size(before)

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run it there; the future may be cancelled only before it has begun."""
        return self._pool.submit(call, *args, **kwargs)

    def close(self) -> None:
        """Take nothing more; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
