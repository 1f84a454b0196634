"""A radix tree over token sequences: which known sequence shares the longest prefix with a prompt.

Every edge holds a run of tokens, so a tree of n sequences has at most 2n nodes however long they
are. A node knows which sequences pass through it, told apart by whether they are at hand (in the KV
cache) or away (in host memory): one that is at hand is the cheaper source. What a sequence is, and
what becomes of it, is not known here. The structure is that of Morrison's PATRICIA trie (1968).
"""

from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)


class Match(NamedTuple, Generic[K]):
    """`key` begins with the first `tokens` of what was asked for."""

    key: K
    tokens: int


class _Node(Generic[K]):
    __slots__ = ("at_hand", "away", "children", "ends", "parent", "run")

    def __init__(self, run: tuple[int, ...], parent: "_Node[K] | None") -> None:
        self.run, self.parent = run, parent
        self.children: dict[int, _Node[K]] = {}
        # Used as ordered sets; the last is the one that came last.
        self.at_hand: dict[K, None] = {}
        self.away: dict[K, None] = {}
        self.ends: dict[K, None] = {}


class RadixTree(Generic[K]):
    """Sequences by key. One key has one sequence, which may be added anew, longer or shorter."""

    def __init__(self) -> None:
        self._root: _Node[K] = _Node((), None)
        self._ends: dict[K, _Node[K]] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def __contains__(self, key: K) -> bool:
        return key in self._ends

    def add(self, key: K, tokens: Sequence[int], *, at_hand: bool = True) -> None:
        """Know `tokens` by `key` from now on, instead of what `key` stood for."""
        self.remove(key)
        node, at = self._root, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                child = node.children[tokens[at]] = _Node(tuple(tokens[at:]), node)
            else:
                shared = _shared(child.run, tokens, at)
                if shared < len(child.run):
                    child = self._split(child, shared)
            node, at = child, at + len(child.run)
        self._ends[key] = node
        node.ends[key] = None
        self._mark(key, at_hand)

    def remove(self, key: K) -> None:
        """Forget the sequence of `key`, if there is one."""
        node = self._ends.pop(key, None)
        if node is not None:
            del node.ends[key]
        while node is not None:
            node.at_hand.pop(key, None)
            node.away.pop(key, None)
            parent = node.parent
            if parent is not None and not node.at_hand and not node.away:
                del parent.children[node.run[0]]
            node = parent

    def move(self, key: K, *, at_hand: bool) -> None:
        """The sequence has come to hand, or gone away."""
        self._mark(key, at_hand)

    def longest(self, tokens: Sequence[int]) -> tuple[Match[K] | None, Match[K] | None]:
        """The longest matches at hand and away; of equals, the latest. None: nothing in common."""
        best: list[Match[K] | None] = [None, None]
        node, at = self._root, 0
        while at < len(tokens) and (child := node.children.get(tokens[at])) is not None:
            shared = _shared(child.run, tokens, at)
            node, at = child, at + shared
            for side, keys in enumerate((node.at_hand, node.away)):
                if keys:
                    best[side] = Match(next(reversed(keys)), at)
            if shared < len(child.run):
                break
        return best[0], best[1]

    def covered(self, key: K) -> list[K]:
        """The others whose whole sequence is the beginning of that of `key`, or all of it."""
        found, node = [], self._ends.get(key)
        while node is not None:
            found += [other for other in node.ends if other != key]
            node = node.parent
        return found

    def _mark(self, key: K, at_hand: bool) -> None:
        node: _Node[K] | None = self._ends[key]
        while node is not None:
            node.at_hand.pop(key, None)
            node.away.pop(key, None)
            (node.at_hand if at_hand else node.away)[key] = None
            node = node.parent

    def _split(self, node: _Node[K], length: int) -> _Node[K]:
        """Put a node in the middle of the edge to `node`, after `length` of its tokens."""
        parent = node.parent
        assert parent is not None  # noqa: S101  the root has no edge to it
        upper: _Node[K] = _Node(node.run[:length], parent)
        upper.at_hand, upper.away = dict(node.at_hand), dict(node.away)
        upper.children[node.run[length]] = node
        parent.children[node.run[0]] = upper
        node.run, node.parent = node.run[length:], upper
        return upper


def _shared(run: tuple[int, ...], tokens: Sequence[int], at: int) -> int:
    """How many tokens of `run` stand in `tokens` from `at` on."""
    piece = tokens[at : at + len(run)]
    if tuple(piece) == run:
        return len(run)
    # The comparison above is one call for whole runs, which most are.
    return next((i for i, (a, b) in enumerate(zip(run, piece, strict=False)) if a != b), len(piece))
