"""Cells that sequences leave, in a cache that takes the first free cell as the native one does."""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.llm.cell_order import CellOrder
from services.llm.core.cells import Cells
from services.llm.llama_context import Context

GRAVE = 8
CELLS = 4000
PLENTY = 1 << 40


class Cell(NamedTuple):
    position: int
    sequences: frozenset[int]


class Cache:
    """llama.cpp's unified cache, cell by cell: who holds it, and the token of which position."""

    def __init__(self, size: int = CELLS) -> None:
        self.cells: list[Cell | None] = [None] * size
        self.head = 0
        self.moves = 0

    def cells_of(self, sequence: int) -> list[int]:
        """Where its tokens lie, by position."""
        held = [(c.position, at) for at, c in self._held() if sequence in c.sequences]
        return [at for _, at in sorted(held)]

    def append(self, sequence: int, positions: list[int]) -> bool:
        used = sum(1 for _ in self._held())
        start = 0 if self.head > used + 2 * len(positions) else self.head
        order = [*range(start, len(self.cells)), *range(start)]
        found = [at for at in order if self.cells[at] is None][: len(positions)]
        if len(found) < len(positions):
            return False
        for at, position in zip(found, positions, strict=True):
            self.cells[at] = Cell(position, frozenset({sequence}))
        self.head = found[-1] + 1 if found else self.head
        return True

    def copy(self, source: int, sequence: int, begin: int, end: int = -1) -> None:
        for at, cell in self._held():
            if source in cell.sequences and cell.position in _range(begin, end):
                self.cells[at] = cell._replace(sequences=cell.sequences | {sequence})

    def cut(self, sequence: int, position: int) -> bool:
        self._remove(sequence, position, -1)
        return True

    def drop(self, sequence: int, tokens: int) -> None:
        self._remove(sequence, 0, tokens)

    def saved_bytes(self, sequence: int) -> int:
        return len(self.cells_of(sequence))

    def held_tokens(self, sequence: int) -> int:
        return max((c.position + 1 for _, c in self._held() if sequence in c.sequences), default=0)

    def save(self, sequence: int) -> list[int]:
        return [c.position for _, c in self._held() if sequence in c.sequences]

    def restore(self, sequence: int, state: list[int]) -> bool:
        self.moves += len(state)
        return self.append(sequence, state)

    def _remove(self, sequence: int, begin: int, end: int) -> None:
        freed = []
        for at, cell in self._held():
            if sequence in cell.sequences and cell.position in _range(begin, end):
                rest = cell.sequences - {sequence}
                self.cells[at] = cell._replace(sequences=rest) if rest else None
                freed += [] if rest else [at]
        self.head = min([self.head, *freed])

    def _held(self) -> Iterator[tuple[int, Cell]]:
        return ((at, cell) for at, cell in enumerate(self.cells) if cell is not None)


def _range(begin: int, end: int) -> range:
    return range(begin, end if end >= 0 else 1 << 30)


class World:
    """Sequences that come, grow, guess wrong and go, as `KvCache` has them."""

    def __init__(self, *, grave: int = GRAVE, copied: int = PLENTY, size: int = CELLS) -> None:
        self.cache, self.cells = Cache(size), Cells()
        context = cast("Context", self.cache)
        self.order = CellOrder(context, self.cells, grave=grave, copy_bytes=copied)
        self.tokens: dict[int, int] = {}

    def grow(self, sequence: int, count: int) -> bool:
        held = self.tokens.get(sequence, 0)
        while not self.cache.append(sequence, list(range(held, held + count))):
            if not self.order.compact():
                return False
        self.tokens[sequence] = held + count
        self.cells.set(sequence, held + count)
        return True

    def guess(self, sequence: int, count: int, wrong: int) -> bool:
        """Grow by `count`, which are counted when the `wrong` ones at the end have been cut off."""
        held = self.tokens[sequence]
        while not self.cache.append(sequence, list(range(held, held + count))):
            if not self.order.compact():
                return False
        self.cut(sequence, held + count - wrong)
        return True

    def share(self, source: int, sequence: int, tokens: int) -> None:
        self.cache.copy(source, sequence, 0, tokens)
        self.cells.copy(source, sequence, tokens)
        self.tokens[sequence] = tokens

    def cut(self, sequence: int, tokens: int) -> None:
        self.order.cut(sequence, tokens)
        self.tokens[sequence] = tokens

    def clear(self, sequence: int) -> None:
        self.order.clear(sequence)
        del self.tokens[sequence]

    def check(self, *, ordered: bool = True) -> None:
        for sequence, tokens in self.tokens.items():
            cells = self.cache.cells_of(sequence)
            assert len(cells) == tokens
            assert not ordered or cells == sorted(cells), f"{sequence} is not in order"
        held = [cell for cell in self.cache.cells if cell is not None]
        dead = [cell for cell in held if cell.sequences == {GRAVE}]
        assert len(held) - len(dead) == self.cells.used
        assert len(dead) == self.order.tombstones


DEED: Any = st.tuples(
    st.sampled_from(
        ["grow", "grow", "share", "share", "guess", "cut", "clear", "clear", "compact"]
    ),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 90),
)


def perform(world: World, deed: str, mine: int, other: int, count: int) -> None:
    if deed == "grow":
        world.grow(mine, count + 1)
    elif deed == "share" and mine not in world.tokens and other in world.tokens:
        world.share(other, mine, min(count, world.tokens[other]))
    elif deed == "guess" and mine in world.tokens:
        world.guess(mine, count // 8 + 1, wrong=min(other, count // 8 + 1))
    elif deed == "cut" and mine in world.tokens:
        world.cut(mine, max(0, world.tokens[mine] - count))
    elif deed == "clear" and mine in world.tokens:
        world.clear(mine)
    elif deed == "compact":
        world.order.compact()


@settings(max_examples=300)
@given(st.lists(DEED, max_size=40))
def test_cells_keep_the_order_of_their_tokens(deeds: list[tuple[str, int, int, int]]) -> None:
    world = World()
    for deed in deeds:
        perform(world, *deed)
        world.check()
        assert world.order.tombstones <= max(256, world.cells.used / 3)


@settings(max_examples=300)
@given(st.lists(DEED, max_size=40))
def test_a_full_cache_gives_all_that_nobody_holds(deeds: list[tuple[str, int, int, int]]) -> None:
    world = World(size=300)
    for deed in deeds:
        room = 300 - world.cells.used
        grown = deed[3] + 1 if deed[0] == "grow" else 0
        before = world.tokens.get(deed[1], 0)
        perform(world, *deed)
        if grown:
            assert (world.tokens.get(deed[1], 0) == before + grown) == (grown <= room)
        world.check()


@settings(max_examples=300)
@given(st.lists(DEED, max_size=40))
def test_without_room_for_copies_order_is_lost_and_nothing_else(
    deeds: list[tuple[str, int, int, int]],
) -> None:
    world = World(copied=0)
    for deed in deeds:
        perform(world, *deed)
        world.check(ordered=False)
    assert world.cache.moves == 0


def test_where_order_is_not_kept_cells_are_free_at_once() -> None:
    world = World(grave=-1)
    world.grow(0, 100)
    world.grow(1, 100)
    world.clear(0)
    assert sum(cell is not None for cell in world.cache.cells) == 100
    assert (world.order.tombstones, world.order.compact()) == (0, False)


def test_tombstones_are_freed_with_the_last_sequence() -> None:
    world = World()
    world.grow(0, 100)
    world.grow(1, 100)
    world.clear(0)
    assert world.order.tombstones == 100
    world.clear(1)
    assert world.cache.cells == [None] * CELLS
    assert world.cache.moves == 0


def test_what_is_shared_is_copied_once() -> None:
    world = World()
    world.grow(0, 200)
    world.share(0, 1, 150)
    world.grow(2, 50)
    world.grow(1, 10)
    world.clear(2)
    assert world.order.compact()
    assert world.cache.moves == 210
    world.check()


def test_what_is_shared_counts_once_against_the_bound_of_copies() -> None:
    world = World(copied=210)
    world.grow(0, 150)
    world.share(0, 1, 150)
    world.share(0, 2, 150)
    world.grow(3, 50)
    world.grow(1, 30)
    world.grow(2, 30)
    world.clear(3)
    assert world.order.compact()
    assert world.cache.moves == 210
    world.grow(1, 40)
    world.check()


def test_a_newcomer_counts_from_its_first_step_on() -> None:
    world = World()
    world.grow(0, 100)
    world.cells.set(1, 0)  # as `KvCache.enter` does
    assert world.cache.append(0, [100, 101, 102, 103])
    assert world.cache.append(1, list(range(55)))
    world.cut(0, 100)  # none of the guesses was right, and those of 1 are not counted yet
    world.tokens[1] = 55
    world.cells.set(1, 55)
    world.grow(0, 1)
    world.grow(1, 10)
    world.check()


def test_a_cache_that_does_not_take_back_its_own_cells_is_a_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.grow(0, 10)
    world.grow(1, 10)
    world.clear(0)
    monkeypatch.setattr(world.cache, "restore", lambda *_: False)
    with pytest.raises(RuntimeError, match="did not take back"):
        world.order.compact()
