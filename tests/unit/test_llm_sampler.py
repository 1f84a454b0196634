"""Choosing among the likeliest tokens alone is choosing among all of them."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.llm import llama_sampler
from services.llm.llama_sampler import Candidates, Sampler
from services.llm.values import SamplingParams

VOCABULARY = 12_000
Logits = NDArray[np.float32]


def chosen_among_all(params: SamplingParams, logits: Logits) -> int:
    sampler, candidates = Sampler(params, VOCABULARY, ()), Candidates(VOCABULARY)
    candidates.fill(logits)
    llama_sampler._apply(sampler._handle, ctypes.byref(candidates.array))
    sampler.close()
    return candidates.chosen


def chosen(params: SamplingParams, logits: Logits) -> int:
    sampler = Sampler(params, VOCABULARY, ())
    assert sampler.looks_at_few
    token = sampler.choose(logits, Candidates(VOCABULARY))
    sampler.close()
    return token


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    top_k=st.sampled_from([1, 5, 40, 80, 90, 200]),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.8]),
    top_p=st.sampled_from([0.5, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05]),
    spread=st.sampled_from([0.3, 2.5, 8.0]),
    sorted_from=st.sampled_from([None, "best", "worst"]),
)
def test_few_are_enough(
    seed: int,
    top_k: int,
    temperature: float,
    top_p: float,
    min_p: float,
    spread: float,
    sorted_from: str | None,
) -> None:
    logits = np.random.default_rng(seed).normal(size=VOCABULARY).astype(np.float32) * spread
    if sorted_from is not None:  # all of the best in one stretch
        logits = np.sort(logits)[:: -1 if sorted_from == "best" else 1].copy()
    params = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
    )
    assert chosen(params, logits) == chosen_among_all(params, logits)


def test_few_are_looked_at() -> None:
    logits = np.random.default_rng(7).normal(size=VOCABULARY).astype(np.float32)
    candidates = Candidates(VOCABULARY)
    candidates.fill_best(logits, 40)
    assert 40 <= candidates.array.size < 80


@pytest.mark.parametrize("logits", [np.zeros(VOCABULARY), np.full(VOCABULARY, np.nan)])
def test_logits_that_tell_nothing_leave_all(logits: NDArray[np.float64]) -> None:
    candidates = Candidates(VOCABULARY)
    candidates.fill_best(logits.astype(np.float32), 40)
    assert candidates.array.size == VOCABULARY


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(top_k=0),
        SamplingParams(logit_bias={5: 20.0}),
        SamplingParams(temperature=0.0, repetition_penalty=1.2),
        SamplingParams(presence_penalty=0.5),
    ],
    ids=str,
)
def test_what_may_bring_up_any_token_looks_at_all(params: SamplingParams) -> None:
    sampler = Sampler(params, VOCABULARY, ())
    assert not sampler.looks_at_few
    sampler.close()
