"""Sampling parameters → a native chain of samplers, in llama.cpp's own order."""

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp as native
import numpy as np
from numpy.typing import NDArray

from services.llm.llama_api import kept
from services.llm.values import SamplingParams

_sample = kept.llama_sampler_sample
_sample.argtypes, _sample.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32), int
_apply = kept.llama_sampler_apply
_apply.argtypes = (ctypes.c_void_p, ctypes.POINTER(native.llama_token_data_array))
_apply.restype = None
_accept = kept.llama_sampler_accept
_accept.argtypes, _accept.restype = (ctypes.c_void_p, ctypes.c_int32), None


_GROUPS = 16
"""Groups of tokens for each of the best that are looked for: with more, fewer others come along."""
_LEAST_TOKENS = 64
"""For each of the best: with fewer, to look for them costs as much as it spares."""


class Candidates:
    """Room for the logits that a chain of samplers sorts and cuts; one serves a whole thread."""

    def __init__(self, vocabulary_tokens: int) -> None:
        kind = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self._table = np.zeros(vocabulary_tokens, kind)
        self._ids = np.arange(vocabulary_tokens, dtype=np.int32)
        self._half = np.zeros(vocabulary_tokens // 2, np.float32)
        self._good = np.zeros(vocabulary_tokens, np.bool_)
        data = ctypes.cast(self._table.ctypes.data, ctypes.POINTER(native.llama_token_data))
        self.array = native.llama_token_data_array(data, vocabulary_tokens, -1, False)

    def fill(self, logits: NDArray[np.float32]) -> None:
        """Every token with its logit, as a chain expects them."""
        self._table["id"], self._table["logit"] = self._ids, logits
        self._offer(len(self._ids))

    def fill_best(self, logits: NDArray[np.float32], most: int) -> None:
        """The likeliest `most` tokens at least, and few more, in the order of the vocabulary.

        The vocabulary is folded in half until it is as many groups as tokens are wanted, and some
        more. The likeliest of the groups are as many tokens: the last of the `most` best of those
        is a bound from below.
        """
        if len(logits) < most * _LEAST_TOKENS:
            self.fill(logits)
            return
        tops = logits
        while (half := len(tops) // 2) >= most * _GROUPS:
            tops = np.maximum(tops[:half], tops[half : 2 * half], out=self._half[:half])
        bound = np.partition(tops, -most)[-most]
        ids = np.greater_equal(logits, bound, out=self._good).nonzero()[0]
        count = len(ids)
        if count < most:  # not all are numbers
            self.fill(logits)
            return
        self._table["id"][:count], self._table["logit"][:count] = ids, logits[ids]
        self._offer(count)

    def _offer(self, count: int) -> None:
        self.array.size, self.array.selected, self.array.sorted = count, -1, False

    @property
    def chosen(self) -> int:
        """The token that the chain has chosen."""
        return int(self.array.data[self.array.selected].id)


class Sampler:
    """A native chain of samplers; belongs to one answer."""

    def __init__(
        self,
        params: SamplingParams,
        vocabulary_tokens: int,
        history: Sequence[int],
        shift: int = 0,
    ) -> None:
        """`shift`, added to a seed that is given, tells answers to one prompt apart."""
        self._looks_at = _looks_at(params)
        self._handle = native.llama_sampler_chain_init(native.llama_sampler_chain_default_params())
        for stage in _stages(params, vocabulary_tokens, shift):
            native.llama_sampler_chain_add(self._handle, stage)
        if _penalises(params) and params.penalty_window_tokens:
            for token in history[-params.penalty_window_tokens :]:
                self.accept(token)

    @property
    def looks_at_few(self) -> bool:
        """`choose` costs less than `sample`, which looks at the whole vocabulary."""
        return self._looks_at > 0

    def sample(self, context: Any, row: int) -> int:
        """Choose the token after `row` of the native context, which must have logits, and accept
        it.
        """
        return int(_sample(self._handle, context, row))

    def choose(self, logits: NDArray[np.float32], candidates: Candidates) -> int:
        """Choose among `logits`, without accepting."""
        if self._looks_at:
            candidates.fill_best(logits, self._looks_at)
        else:
            candidates.fill(logits)
        _apply(self._handle, ctypes.byref(candidates.array))
        return candidates.chosen

    def accept(self, token: int) -> None:
        """The token is part of the text: penalties count it."""
        _accept(self._handle, token)

    def close(self) -> None:
        """Free the chain."""
        if self._handle:
            native.llama_sampler_free(self._handle)
            self._handle = None


def _penalises(p: SamplingParams) -> bool:
    return (p.repetition_penalty, p.frequency_penalty, p.presence_penalty) != (1.0, 0.0, 0.0)


def _looks_at(p: SamplingParams) -> int:
    """How many of the likeliest tokens the chain can choose from; 0: nothing is known.

    What changes logits by token, a bias or a penalty, may bring up any of them.
    """
    if p.logit_bias or _penalises(p):
        return 0
    return 1 if p.temperature == 0.0 else p.top_k


def _stages(p: SamplingParams, vocabulary_tokens: int, shift: int) -> list[Any]:
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
    return [*stages, native.llama_sampler_init_dist(_seed(p.seed, shift))]


def _seed(seed: int | None, shift: int) -> int:
    """The native seed has 32 bits, and its highest value means random."""
    if seed is None:
        return int(native.LLAMA_DEFAULT_SEED)
    seed = (seed + shift) % 2**64
    folded = (seed ^ (seed >> 32)) & 0xFFFFFFFF
    return folded if folded != native.LLAMA_DEFAULT_SEED else 0
