"""Guesses out of the text itself, and when they stop."""

from hypothesis import given
from hypothesis import strategies as st

from services.llm.core.drafting import (
    LEAST_RUN,
    MOST_WAIT_TOKENS,
    PATIENCE,
    PROBE_TOKENS,
    Governor,
    Lookup,
)


def test_what_followed_last_time_is_guessed() -> None:
    assert Lookup().guess([1, 2, 3, 4, 5, 1, 2], 3) == [3, 4, 5]


def test_the_longest_run_wins_over_the_latest() -> None:
    assert Lookup().guess([7, 1, 2, 30, 9, 1, 2, 40, 7, 1, 2], 1) == [30]


def test_nothing_alike_is_no_guess() -> None:
    assert Lookup().guess([1, 2, 3, 4], 4) == []
    assert Lookup().guess([1], 4) == []
    assert Lookup().guess([1, 2, 1, 2], 0) == []


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 8))
def test_every_guess_stands_in_the_text_behind_the_same_run(tokens: list[int], most: int) -> None:
    whole, piecewise = Lookup(), Lookup()
    for end in range(len(tokens) + 1):
        guess = piecewise.guess(tokens[:end], most)
        assert len(guess) <= most
        if guess:
            run = tokens[end - LEAST_RUN : end] + guess
            assert any(tokens[i : i + len(run)] == run for i in range(end - LEAST_RUN))
    assert whole.guess(tokens, most) == piecewise.guess(tokens, most)


def spent(governor: Governor) -> int:
    """Tokens without guesses until the next probe."""
    tokens = 0
    while not governor.allowed():
        governor.judge(0, 0)
        tokens += 1
    return tokens


def test_who_keeps_missing_is_stopped_and_probed_ever_more_seldom() -> None:
    governor = Governor(4)
    for _ in range(PATIENCE - 1):
        governor.judge(4, 0)
        assert governor.allowed() == 4
    waits = []
    for _ in range(6):
        governor.judge(4, 0)
        waits.append(spent(governor))
    assert waits == [PROBE_TOKENS * 2**n for n in range(5)] + [MOST_WAIT_TOKENS]


def test_a_hit_is_forgiven_everything() -> None:
    governor = Governor(4)
    for _ in range(PATIENCE):
        governor.judge(4, 0)
    spent(governor)
    governor.judge(4, 1)
    for _ in range(PATIENCE - 1):
        governor.judge(4, 0)
        assert governor.allowed() == 4
