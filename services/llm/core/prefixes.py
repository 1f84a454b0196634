"""Which prefixes are kept, where, and what a new prompt may begin with. Pure: effects out as data.

A sequence that has run is a prefix somebody may come back to: the next turn of a conversation
begins with the last one. While it is in the KV cache it costs nothing to share, but its idle cells
slow every decode; so only a few stay there, and the others are parked in host memory, where they
are bounded, too. The least recently used goes first in both places.

    running ──ends──► idle (in the cache) ──► parked (in host memory) ──► forgotten
       ▲                  │ shared by copy        │ restored
       └──────────────────┴───────────────────────┘

Reuse never crosses a scope. A prefix that another one begins with is not kept beside it. What is
still running can be shared, too, as soon as its prompt is in the cache.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.llm.core.radix import Match, RadixTree

LEAST_TOKENS = 16
"""Shorter prefixes are sooner computed than found."""
RESTORE_GAIN_TOKENS = 8
"""A parked prefix must save this much more than one that is at hand."""
MOST_PARKED = 1024


class Reuse(NamedTuple):
    """A prompt may begin with the first `tokens` of the prefix `key`."""

    key: int
    tokens: int
    sequence: int
    """Where it is in the cache; -1: it is parked."""


@dataclass(slots=True)
class _Kept:
    scope: str
    sequence: int
    running: bool
    parked_bytes: int = 0


class Park(NamedTuple):
    """Move the idle prefix `key` from its sequence to host memory."""

    key: int
    sequence: int


class Forget(NamedTuple):
    """The prefix `key` is not kept any more: free its sequence, or its memory where that is -1."""

    key: int
    sequence: int


Effect = Park | Forget


class Prefixes:
    """All prefixes of one KV cache. `freed_cells` tells what sequences would free that
    leave together: cells that they share stay until the last of them goes.
    """

    def __init__(
        self,
        *,
        idle_tokens: int,
        idle_sequences: int,
        parked_bytes: int,
        freed_cells: Callable[[Collection[int]], int],
    ) -> None:
        self._idle_tokens, self._idle_sequences = idle_tokens, idle_sequences
        self._parked_limit, self._freed_cells = parked_bytes, freed_cells
        self._trees: dict[str, RadixTree[int]] = {}
        self._kept: dict[int, _Kept] = {}  # in order of last use
        self._next_key = 0
        self.parked_bytes = 0
        """Host memory that prefixes hold."""
        self._reserved_bytes = 0

    @property
    def idle(self) -> list[int]:
        """The prefixes that are in the cache for nobody, least recently used first."""
        kept = dict(self._kept)  # whole, for a glance from another thread
        return [k for k, one in kept.items() if one.sequence >= 0 and not one.running]

    @property
    def parked(self) -> list[int]:
        """Those in host memory, least recently used first."""
        return [k for k, kept in dict(self._kept).items() if kept.sequence < 0]

    @property
    def host_bytes(self) -> int:
        """Host memory in use, by prefixes and by what it was reserved for."""
        return self.parked_bytes + self._reserved_bytes

    def sequences(self, keys: Iterable[int]) -> list[int]:
        """Where these are in the cache; those that have left it meanwhile are not."""
        kept = (self._kept.get(key) for key in keys)
        return [one.sequence for one in kept if one is not None and one.sequence >= 0]

    def find(self, scope: str, prompt: Sequence[int]) -> Reuse | None:
        """The best beginning for `prompt`, of which at least the last token is left to compute."""
        tree = self._trees.get(scope)
        if tree is None:
            return None
        most = len(prompt) - 1
        at_hand, away = (_cut(match, most) for match in tree.longest(prompt))
        best = at_hand
        if away is not None and away.tokens >= RESTORE_GAIN_TOKENS + (
            at_hand.tokens if at_hand else 0
        ):
            best = away
        if best is None or best.tokens < LEAST_TOKENS:
            return None
        self._touch(best.key)
        return Reuse(best.key, best.tokens, self._kept[best.key].sequence)

    def running(self, scope: str, tokens: Sequence[int], sequence: int) -> int:
        """These tokens of a running sequence are in the cache; the key they are known by."""
        key, self._next_key = self._next_key, self._next_key + 1
        self._kept[key] = _Kept(scope, sequence, running=True)
        self._tree(scope).add(key, tokens)
        return key

    def extended(self, key: int, tokens: Sequence[int]) -> None:
        """More of a running sequence is in the cache."""
        self._tree(self._kept[key].scope).add(key, tokens)

    def ended(self, key: int, tokens: Sequence[int]) -> list[Effect]:
        """A running sequence is over, with these tokens in the cache: it is idle, or forgotten."""
        kept = self._kept[key]
        kept.running = False
        if len(tokens) < LEAST_TOKENS:
            return [self._forget(key)]
        tree = self._tree(kept.scope)
        tree.add(key, tokens)
        self._touch(key)
        return [self._forget(k) for k in tree.covered(key) if not self._kept[k].running]

    def gone(self, key: int) -> None:
        """A running sequence has lost its cells."""
        self._forget(key)

    def parked_now(self, key: int, size_bytes: int) -> list[Effect]:
        """The prefix is in host memory; others may have to leave there, or it."""
        kept = self._kept[key]
        kept.sequence, kept.parked_bytes = -1, size_bytes
        self.parked_bytes += size_bytes
        self._tree(kept.scope).move(key, at_hand=False)
        return self.fit_host(0)

    def reserve(self, size_bytes: int) -> tuple[bool, list[Effect]]:
        """Host memory for what is not a prefix, until `release`; whether there is that much."""
        if self._reserved_bytes + size_bytes > self._parked_limit:
            return False, []
        self._reserved_bytes += size_bytes
        return True, self.fit_host(0)

    def release(self, size_bytes: int) -> None:
        """Give back what was reserved."""
        self._reserved_bytes -= size_bytes

    def fit_host(self, more_bytes: int) -> list[Effect]:
        """Make room for `more_bytes` in host memory."""
        out: list[Effect] = []
        parked = self.parked
        while parked and (
            self.parked_bytes + self._reserved_bytes + more_bytes > self._parked_limit
            or len(parked) > MOST_PARKED
        ):
            out.append(self._forget(parked.pop(0)))
        return out

    def fit_cache(self) -> list[Effect]:
        """Some sequence has left: what only idle prefixes hold now keeps to its bound."""
        idle, leaving, out = self.idle, list[int](), list[Effect]()
        cells = self._freed_cells([self._kept[k].sequence for k in idle])
        while idle and (
            cells - self._freed_cells(leaving) > self._idle_tokens
            or len(idle) > self._idle_sequences
        ):
            first = idle.pop(0)
            leaving.append(self._kept[first].sequence)
            out.append(self._leave(first))
        return out

    def reclaim(self) -> list[Effect]:
        """The cache is full: the prefix that was idle longest leaves it; none: nobody is idle."""
        idle = self.idle
        return [self._leave(idle[0])] if idle else []

    def forget(self, key: int) -> Forget:
        """It cannot be used."""
        return self._forget(key)

    def _leave(self, key: int) -> Effect:
        if self._parked_limit <= 0:
            return self._forget(key)
        return Park(key, self._kept[key].sequence)

    def _forget(self, key: int) -> Forget:
        kept = self._kept.pop(key)
        self.parked_bytes -= kept.parked_bytes
        tree = self._trees[kept.scope]
        tree.remove(key)
        if not tree:
            del self._trees[kept.scope]
        return Forget(key, kept.sequence)

    def _touch(self, key: int) -> None:
        self._kept[key] = self._kept.pop(key)

    def _tree(self, scope: str) -> RadixTree[int]:
        return self._trees.setdefault(scope, RadixTree())


def _cut(match: Match[int] | None, most: int) -> Match[int] | None:
    return match and match._replace(tokens=min(match.tokens, most))
