"""How much memory a model takes when it is loaded, by its header and its room. Pure.

Weights and caches are exact up to padding; buffers are a guess from above. What was measured goes
before all of this, where hosting measures.
"""

from dataclasses import replace

from services.llm.engine import ALL_LAYERS, MOST_COPIED_MIB, EngineSpec
from services.llm.gguf_meta import ArrayLength, GgufMeta

_PROCESS_MIB = 96
"""The interpreter with its libraries."""
_MORE_SEQUENCES = 32
"""Beside the places: further choices of their requests, prefixes, and one of nobody's; each has a
row of logits."""
_CARD_CONTEXT_MIB = 448
"""What a driver keeps for each process on a card, its compiled kernels included; a guess."""


def kv_cache_bytes(meta: GgufMeta, spec: EngineSpec) -> int:
    """The KV cache of `spec`: exact up to padding; sliding-window layers are counted in full, as
    they are allocated.
    """
    return _cells(meta, spec) * meta.kv_bytes_per_token(spec.kv_type)


def estimate_resident_mib(meta: GgufMeta, spec: EngineSpec) -> int:
    """Host memory of `spec` when all of it is there: weights, caches and buffers.

    The buffers are a guess from above: activations of one pass, rows of logits, and what of a cache
    is copied to put it in order.
    """
    cache_bytes = kv_cache_bytes(meta, spec)
    total = meta.weights_bytes + cache_bytes + _buffer_bytes(meta, spec)
    copied_mib = min(MOST_COPIED_MIB, _mib(cache_bytes)) if spec.ordered_cells else 0
    return _mib(total) + spec.prefix_cache_mib + copied_mib + _PROCESS_MIB


def estimate_card_mib(meta: GgufMeta, spec: EngineSpec) -> int:
    """Memory of the card that `spec.gpu_layers` of it take up; 0 without any.

    A layer takes its share of the weights and of the cache; buffers are there in full.
    """
    if not spec.gpu_layers:
        return 0
    layers = meta.layers if spec.gpu_layers == ALL_LAYERS else min(spec.gpu_layers, meta.layers)
    placed = (meta.weights_bytes + kv_cache_bytes(meta, spec)) * layers // meta.layers
    return _mib(placed + _buffer_bytes(meta, spec)) + _CARD_CONTEXT_MIB


def estimate_draft_mib(draft: GgufMeta, meta: GgufMeta, spec: EngineSpec, *, on_card: bool) -> int:
    """What the draft model of `spec` takes in the same process, whose own model has header `meta`:
    memory of the card, or of the host. It follows every text the model's cache can hold.
    """
    sized = replace(
        spec, cache_tokens=_cells(meta, spec), gpu_layers=spec.draft_gpu_layers, speculation="off"
    )
    if on_card:
        shared_mib = _CARD_CONTEXT_MIB if spec.gpu_layers and sized.gpu_layers else 0
        return estimate_card_mib(draft, sized) - shared_mib
    return _mib(draft.weights_bytes + kv_cache_bytes(draft, sized) + _buffer_bytes(draft, sized))


def _cells(meta: GgufMeta, spec: EngineSpec) -> int:
    context = spec.context_tokens or meta.trained_context_tokens
    return -(-(spec.cache_tokens or context * spec.places) // 256) * 256


def _buffer_bytes(meta: GgufMeta, spec: EngineSpec) -> int:
    width = 4 * meta.of_architecture("embedding_length")
    width += 3 * meta.of_architecture("feed_forward_length")
    # Without flash attention the scores of all heads are kept for a pass; with it they are not.
    scores = 0 if spec.flash_attention else _cells(meta, spec)
    vocabulary = meta.values.get("tokenizer.ggml.tokens", ArrayLength(0))
    guesses = spec.draft_tokens if spec.speculation != "off" else 0
    rows = (spec.places + _MORE_SEQUENCES) * (1 + guesses)
    logits = rows * getattr(vocabulary, "length", 0)
    return 4 * (spec.ubatch_tokens * (width + scores) + logits)


def _mib(size: int) -> int:
    return -(-size // (1 << 20))
