"""What a draft model has of texts that grow, and what it reads next."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.llm.core.trailing import LET_GO, Lack, Trail, plan_reading


def trail(cached: int, *ahead: int) -> Trail:
    made = Trail(0)
    made.cached, made.ahead = cached, list(ahead)
    return made


def test_guesses_that_came_true_are_kept() -> None:
    one = trail(2, 3, 4)
    assert not one.agree([1, 2, 3, 4, 5, 6])
    assert (one.cached, one.held_tokens) == (4, 4)


def test_wrong_guesses_are_cut() -> None:
    one = trail(2, 3, 4)
    assert one.agree([1, 2, 3, 9])
    assert (one.cached, one.held_tokens) == (3, 3)


def test_the_last_token_is_read_anew_when_all_is_there() -> None:
    for one in (trail(2, 3), trail(3)):
        assert one.agree([1, 2, 3])
        assert (one.cached, one.ahead) == (2, [])


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=12),
    st.integers(0, 12),
    st.lists(st.integers(0, 2), max_size=5),
)
def test_what_is_kept_is_the_text(tokens: list[int], cached: int, ahead: list[int]) -> None:
    one = trail(min(cached, len(tokens)), *ahead)
    held = tokens[: one.cached] + ahead
    cut = one.agree(tokens)
    assert one.cached < len(tokens)
    assert held[: one.cached] == tokens[: one.cached]
    assert cut == (one.cached < len(held))
    longest = sum(all(a == b for a, b in zip(held[:n], tokens, strict=False)) for n in range(1, 18))
    assert one.cached >= min(longest, len(held), len(tokens) - 1)


def test_what_a_step_adds_is_read_at_once_and_a_prompt_in_chunks() -> None:
    lacks = [Lack(50, 1, 4), Lack(0, 300, 0), Lack(40, 2, 4), Lack(0, 100, 0)]
    plan = plan_reading(lacks, batch_tokens=64, chunk_tokens=32, cells=1000)
    assert plan == [1, 32, 2, 0]


def test_a_text_that_does_not_fit_is_let_go_of_and_a_shorter_one_is_not() -> None:
    lacks = [Lack(50, 1, 4), Lack(30, 100, 4), Lack(0, 10, 4)]
    plan = plan_reading(lacks, batch_tokens=64, chunk_tokens=32, cells=100)
    assert plan == [1, LET_GO, 10]


LACKS = st.builds(Lack, st.integers(0, 50), st.integers(0, 50), st.integers(0, 4))


@given(st.lists(LACKS, max_size=8), st.integers(1, 40), st.integers(1, 40), st.integers(0, 300))
def test_no_bound_is_ever_passed(lacks: list[Lack], batch: int, chunk: int, cells: int) -> None:
    plan = plan_reading(lacks, batch_tokens=batch, chunk_tokens=chunk, cells=cells)
    taken = [(lack, take) for lack, take in zip(lacks, plan, strict=True) if take != LET_GO]
    assert sum(take for _, take in taken) <= batch
    assert sum(take for lack, take in taken if lack.owed_tokens > 2) <= chunk
    assert all(0 <= take <= lack.owed_tokens for lack, take in taken)
    assert sum(sum(lack) for lack, _ in taken) <= cells


def test_a_prompt_is_read_to_its_end() -> None:
    owed = [100]
    while owed[-1]:
        (take,) = plan_reading(
            [Lack(100 - owed[-1], owed[-1], 4)], batch_tokens=60, chunk_tokens=32, cells=200
        )
        owed.append(owed[-1] - take)
    assert [a - b for a, b in pairwise(owed)] == [32, 32, 32, 4]
