"""Which texts the next native call works on. Pure: requests in, a call's texts out.

A call holds whole texts, of as many requests as there are:
 1. Requests take turns, one text each; whoever was served goes to the back.
 2. The call is full when the next text in turn does not fit `batch_tokens`, or it holds
    `most_texts`. That text is then the first of the next call: nobody is passed over.
 3. A text that is longer than `batch_tokens` has a call to itself.

Tokens themselves, threads and the library stay out.
"""

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

K = TypeVar("K")


class Pending(Generic[K]):
    """A request's texts that are not in a call yet, by their `lengths` in tokens; at least one."""

    __slots__ = ("given", "key", "lengths")

    def __init__(self, key: K, lengths: Sequence[int]) -> None:
        self.key, self.lengths = key, lengths
        self.given = 0
        """Texts that were put into calls."""


def next_call(
    queue: deque[Pending[K]], batch_tokens: int, most_texts: int
) -> list[tuple[Pending[K], int]]:
    """Take a call's texts from `queue`: each with its request and its index there."""
    call: list[tuple[Pending[K], int]] = []
    used = 0
    while queue and len(call) < most_texts:
        pending = queue[0]
        at = pending.given
        if call and used + pending.lengths[at] > batch_tokens:
            break
        used += pending.lengths[at]
        call.append((pending, at))
        pending.given += 1
        queue.popleft()
        if pending.given < len(pending.lengths):
            queue.append(pending)
    return call
