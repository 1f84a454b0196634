"""How many cells of the KV cache are in use: a cell that several sequences share counts once.

The native cache does not say. It is known from what was done to it: a sequence grows by the tokens
that are decoded, and begins with those that it was copied from another. When that other one leaves,
its cells stay with the copies; the copy with the longest shared prefix then stands in its place.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class _Sequence:
    tokens: int
    source: int = -1
    shared: int = 0
    """Tokens at its beginning whose cells are those of `source`."""


class Share(NamedTuple):
    """The first `tokens` of a sequence are in the cells of `source`; 0: none are."""

    sequence: int
    source: int
    tokens: int


class Cells:
    """By sequence id."""

    def __init__(self) -> None:
        self._sequences: dict[int, _Sequence] = {}
        self.used = 0
        """Cells that hold at least one sequence."""

    def held(self, sequences: Iterable[int]) -> int:
        """Cells that at least one of these sequences is in."""
        known = dict(self._sequences)  # whole, for a glance from another thread
        ends: dict[int, int] = {}  # how much of each sequence, from its beginning, is in use
        for i in sequences:
            at, end = i, known[i].tokens if i in known else 0
            while end > 0 and at in known:
                ends[at] = max(ends.get(at, known[at].shared), end)
                at, end = known[at].source, min(end, known[at].shared)
        return sum(end - known[i].shared for i, end in ends.items())

    def freed(self, sequences: Collection[int]) -> int:
        """Cells that come free when these sequences leave together."""
        return self.used - self.held(i for i in self._sequences if i not in sequences)

    def __len__(self) -> int:
        """How many sequences there are."""
        return len(self._sequences)

    def shares(self) -> list[Share]:
        """Every sequence, behind the one whose cells it shares."""
        out: dict[int, Share] = {}
        for sequence in self._sequences:
            at, chain = sequence, list[int]()
            while at in self._sequences and at not in out:
                chain.append(at)
                at = self._sequences[at].source
            for at in reversed(chain):
                one = self._sequences[at]
                out[at] = Share(at, one.source, one.shared)
        return list(out.values())

    def set(self, sequence: int, tokens: int) -> None:
        """It holds that many tokens now; more were decoded, or some cut off."""
        mine = self._sequences.setdefault(sequence, _Sequence(0))
        shared = mine.shared
        owned = mine.tokens - shared
        mine.tokens, mine.shared = tokens, min(shared, tokens)
        self.used += mine.tokens - mine.shared - owned
        self._detach(sequence, max(tokens, shared))
        for i in self._copies(sequence):
            if self._sequences[i].shared > tokens:  # cells that were its source's all along
                self._sequences[i].source = mine.source

    def copy(self, source: int, sequence: int, tokens: int) -> None:
        """A new sequence begins with the first `tokens` of `source`, in the same cells."""
        self.remove(sequence)
        self._sequences[sequence] = _Sequence(tokens, source, tokens)

    def remove(self, sequence: int) -> None:
        """It is gone."""
        mine = self._sequences.get(sequence)
        if mine is None:
            return
        self.used -= mine.tokens - mine.shared
        self._detach(sequence, mine.shared)
        del self._sequences[sequence]
        for i in self._copies(sequence):  # what they still share is its source's
            self._sequences[i].source = mine.source

    def _detach(self, sequence: int, tokens: int) -> None:
        """It has lost its cells behind `tokens`: those that copies share stay, with the copies."""
        copies = self._copies(sequence)
        heir = max(copies, key=lambda i: self._sequences[i].shared, default=-1)
        if heir < 0 or self._sequences[heir].shared <= tokens:
            return
        inherited = self._sequences[heir]
        self.used += inherited.shared - tokens
        for i in copies:
            if i != heir and self._sequences[i].shared > tokens:
                self._sequences[i].source = heir
        inherited.shared = tokens

    def _copies(self, sequence: int) -> list[int]:
        return [i for i, s in self._sequences.items() if s.source == sequence]
