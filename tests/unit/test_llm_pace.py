"""Chunks of a prompt shrink with the time they take, and grow back."""

from hypothesis import given
from hypothesis import strategies as st

from services.llm.core.pace import LEAST_TOKENS, TARGET_S, Pace


def test_nothing_is_known_at_first() -> None:
    assert Pace(32).chunk_tokens == 32


def test_slow_steps_bring_fewer_tokens_and_quick_ones_the_bound() -> None:
    pace = Pace(32)
    pace.observe(32, 2 * TARGET_S)
    assert pace.chunk_tokens == 16
    for _ in range(20):
        pace.observe(16, TARGET_S / 4)
    assert pace.chunk_tokens == 32


def test_a_newcomer_always_gets_on() -> None:
    pace = Pace(32)
    pace.observe(8, 1000 * TARGET_S)
    assert pace.chunk_tokens == LEAST_TOKENS


@given(st.floats(1e-4, 0.1), st.integers(8, 512))
def test_a_steady_machine_keeps_the_target(token_s: float, most: int) -> None:
    pace = Pace(most)
    for _ in range(30):
        chunk = pace.chunk_tokens
        assert LEAST_TOKENS <= chunk <= max(most, LEAST_TOKENS)
        pace.observe(chunk, chunk * token_s)
    chunk = pace.chunk_tokens
    assert chunk in (LEAST_TOKENS, most) or chunk * token_s <= TARGET_S * 1.001
