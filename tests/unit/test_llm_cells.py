"""Cells in use, against sets of cells that are really shared."""

from hypothesis import given
from hypothesis import strategies as st

from services.llm.core.cells import Cells

DEED = st.tuples(
    st.sampled_from(["grow", "grow", "copy", "copy", "cut", "remove"]),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 6),
)


@given(st.lists(DEED, max_size=40))
def test_shared_cells_count_once(deeds: list[tuple[str, int, int, int]]) -> None:
    cells, real, fresh = Cells(), dict[int, list[int]](), iter(range(10_000))
    for deed, mine, other, count in deeds:
        if deed == "grow":
            real.setdefault(mine, []).extend(next(fresh) for _ in range(count + 1))
            cells.set(mine, len(real[mine]))
        elif deed == "cut" and mine in real:
            del real[mine][count:]
            cells.set(mine, len(real[mine]))
        elif deed == "copy" and other in real and mine != other:
            real[mine] = real[other][:count]
            cells.copy(other, mine, len(real[mine]))
        elif deed == "remove":
            real.pop(mine, None)
            cells.remove(mine)
        assert cells.used == len({cell for run in real.values() for cell in run})
        assert len(cells) == len(real)
        shares = cells.shares()
        assert sorted(share.sequence for share in shares) == sorted(real)
        for at, (sequence, source, tokens) in enumerate(shares):
            assert not tokens or source in [before.sequence for before in shares[:at]]
            assert real[sequence][:tokens] == real.get(source, [])[:tokens]
        assert sum(len(real[share.sequence]) - share.tokens for share in shares) == cells.used
        for some in (set(real), {0, 1}, {mine}, {other, 99}):
            within = {cell for i, run in real.items() if i in some for cell in run}
            without = {cell for i, run in real.items() if i not in some for cell in run}
            assert cells.held(some) == len(within)
            assert cells.freed(some) == len(within - without)
