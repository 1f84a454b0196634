"""The plan of a decode step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.llm.core.plan import Demand, Slice, plan_step

DEMANDS = st.lists(
    st.one_of(st.just(1), st.integers(min_value=1, max_value=900)), min_size=1, max_size=16
).map(lambda owed: [Demand(key, tokens) for key, tokens in enumerate(owed)])


def test_alone_a_prompt_gets_the_whole_batch() -> None:
    assert plan_step([Demand(3, 900)], batch_tokens=512, chunk_tokens=64) == (Slice(3, 512, 0),)


def test_beside_decoding_neighbours_it_gets_a_chunk_behind_their_rows() -> None:
    plan = plan_step([Demand(0, 900), Demand(1, 1)], batch_tokens=512, chunk_tokens=64)
    assert plan == (Slice(1, 1, 1), Slice(0, 64, 0))


def test_prefill_is_first_come_first_served_and_the_rest_spills_over() -> None:
    plan = plan_step([Demand(0, 5), Demand(1, 90)], batch_tokens=32, chunk_tokens=8)
    assert plan == (Slice(0, 5, 1), Slice(1, 27, 0))


def test_more_sequences_than_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        plan_step([Demand(0, 1), Demand(1, 1)], batch_tokens=1, chunk_tokens=1)


@given(DEMANDS, st.integers(16, 600), st.integers(1, 128))
def test_every_plan_keeps_the_rules(demands: list[Demand], batch: int, chunk: int) -> None:
    plan = plan_step(demands, batch_tokens=batch, chunk_tokens=chunk)
    owed = {demand.key: demand.owed_tokens for demand in demands}
    decoding = [demand.key for demand in demands if demand.owed_tokens == 1]
    prefill = [part for part in plan if owed[part.key] > 1]
    assert plan
    assert len({part.key for part in plan}) == len(plan)
    assert sum(part.tokens for part in plan) <= batch
    assert [part.key for part in plan[: len(decoding)]] == decoding
    assert all(1 <= part.tokens <= owed[part.key] for part in plan)
    assert all(part.outputs == (part.tokens == owed[part.key]) for part in plan)
    assert not decoding or sum(part.tokens for part in prefill) <= chunk
    # Nobody is passed over: all before the last one served are served in full.
    keys = [demand.key for demand in demands if demand.owed_tokens > 1]
    assert [part.key for part in prefill] == keys[: len(prefill)]
    assert all(part.outputs for part in prefill[:-1])


@given(DEMANDS, st.integers(16, 600), st.integers(1, 128))
def test_every_prompt_gets_done(demands: list[Demand], batch: int, chunk: int) -> None:
    owed = {demand.key: demand.owed_tokens for demand in demands}
    for _ in range(1 + sum(owed.values())):
        for part in plan_step(
            [Demand(*item) for item in owed.items()], batch_tokens=batch, chunk_tokens=chunk
        ):
            # A sequence that has its logits decodes on: it owes the token just chosen.
            owed[part.key] = 1 if part.outputs else owed[part.key] - part.tokens
    assert set(owed.values()) == {1}
