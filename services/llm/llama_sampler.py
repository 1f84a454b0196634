"""Sampling parameters → a native chain of samplers, in llama.cpp's own order."""

from collections.abc import Sequence
from typing import Any

import llama_cpp as native

from services.llm.values import SamplingParams


class Sampler:
    """A native chain of samplers; belongs to one answer."""

    def __init__(
        self, params: SamplingParams, vocabulary_tokens: int, history: Sequence[int]
    ) -> None:
        self.handle = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
        for stage in _stages(params, vocabulary_tokens):
            native.llama_sampler_chain_add(self.handle, stage)
        if _penalises(params) and params.penalty_window_tokens:
            for token in history[-params.penalty_window_tokens :]:
                native.llama_sampler_accept(self.handle, token)

    def close(self) -> None:
        """Free the chain."""
        if self.handle:
            native.llama_sampler_free(self.handle)
            self.handle = None


def _penalises(p: SamplingParams) -> bool:
    return (p.repetition_penalty, p.frequency_penalty, p.presence_penalty) != (1.0, 0.0, 0.0)


def _stages(p: SamplingParams, vocabulary_tokens: int) -> list[Any]:
    """The stages in llama.cpp's default order; those that would change nothing are left out."""
    stages = []
    if p.logit_bias:
        biases = [native.llama_logit_bias(t, bias) for t, bias in p.logit_bias.items()]
        array = (native.llama_logit_bias * len(biases))(*biases)
        stages.append(native.llama_sampler_init_logit_bias(vocabulary_tokens, len(biases), array))
    if _penalises(p):
        stages.append(
            native.llama_sampler_init_penalties(
                vocabulary_tokens,
                p.penalty_window_tokens,
                p.repetition_penalty,
                p.frequency_penalty,
                p.presence_penalty,
            )
        )
    if p.temperature == 0.0:
        return [*stages, native.llama_sampler_init_greedy()]
    if p.top_k:
        stages.append(native.llama_sampler_init_top_k(p.top_k))
    if p.typical_p < 1.0:
        stages.append(native.llama_sampler_init_typical(p.typical_p, 1))
    if p.top_p < 1.0:
        stages.append(native.llama_sampler_init_top_p(p.top_p, 1))
    if p.min_p > 0.0:
        stages.append(native.llama_sampler_init_min_p(p.min_p, 1))
    stages.append(native.llama_sampler_init_temp(p.temperature))
    return [*stages, native.llama_sampler_init_dist(_seed(p.seed))]


def _seed(seed: int | None) -> int:
    """The native seed has 32 bits, and its highest value means random."""
    if seed is None:
        return int(native.LLAMA_DEFAULT_SEED)
    folded = (seed ^ (seed >> 32)) & 0xFFFFFFFF
    return folded if folded != native.LLAMA_DEFAULT_SEED else 0
