"""What a model needs of host memory and of a card, by its header."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.llm.engine import ALL_LAYERS, EngineSpec
from services.llm.footprint import (
    estimate_card_mib,
    estimate_draft_mib,
    estimate_resident_mib,
    kv_cache_bytes,
)
from services.llm.gguf_meta import ArrayLength, GgufMeta, read
from tests.tiny_gguf import make_tiny_gguf

SPEC = EngineSpec(Path("m"), context_tokens=4096, places=4, batch_tokens=64)


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> GgufMeta:
    path = make_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")
    return replace(read(path), weights_bytes=3000 << 20)


def test_more_places_and_more_context_need_more_memory(meta: GgufMeta) -> None:
    one, many = replace(SPEC, places=1), replace(SPEC, places=64)
    more = estimate_resident_mib(meta, many) - estimate_resident_mib(meta, one)
    assert more >= 63 * 4096 * meta.kv_bytes_per_token() >> 20
    assert estimate_resident_mib(meta, one) > 3000


def test_the_cache_is_as_large_as_it_is_configured(meta: GgufMeta) -> None:
    assert kv_cache_bytes(meta, SPEC) == 4 * 4096 * meta.kv_bytes_per_token()
    small = replace(SPEC, cache_tokens=5000)
    assert kv_cache_bytes(meta, small) == 5120 * meta.kv_bytes_per_token()


def test_a_quantised_cache_takes_little_more_than_half(meta: GgufMeta) -> None:
    half = kv_cache_bytes(meta, replace(SPEC, kv_type="q8_0", flash_attention=True))
    assert half * 32 == kv_cache_bytes(meta, SPEC) * 17


def test_host_memory_for_prefixes_is_counted(meta: GgufMeta) -> None:
    none = estimate_resident_mib(meta, replace(SPEC, prefix_cache_mib=0))
    assert estimate_resident_mib(meta, replace(SPEC, prefix_cache_mib=77)) == none + 77


def test_copies_of_an_ordered_cache_are_counted(meta: GgufMeta) -> None:
    free = estimate_resident_mib(meta, replace(SPEC, ordered_cells=False))
    cache_mib = -(-kv_cache_bytes(meta, SPEC) // (1 << 20))
    assert estimate_resident_mib(meta, SPEC) == free + min(128, cache_mib)
    vast = replace(SPEC, places=256, batch_tokens=256)
    assert kv_cache_bytes(meta, vast) > 128 << 20
    free = estimate_resident_mib(meta, replace(vast, ordered_cells=False))
    assert estimate_resident_mib(meta, vast) == free + 128


def test_of_a_card_only_what_is_placed_there_is_taken(meta: GgufMeta) -> None:
    assert meta.layers == 3
    assert estimate_card_mib(meta, SPEC) == 0
    sizes = [estimate_card_mib(meta, replace(SPEC, gpu_layers=n)) for n in (1, 2, 3, 99)]
    assert 1000 < sizes[0] < sizes[1] < sizes[2] == sizes[3]
    assert sizes[1] - sizes[0] >= 1000
    assert sizes[3] == estimate_card_mib(meta, replace(SPEC, gpu_layers=ALL_LAYERS))


def test_rows_of_logits_are_counted_for_guesses_too(meta: GgufMeta) -> None:
    wide = replace(meta, values={**meta.values, "tokenizer.ggml.tokens": ArrayLength(262_144)})
    plain = estimate_resident_mib(wide, SPEC)
    guessing = estimate_resident_mib(wide, replace(SPEC, speculation="lookup", draft_tokens=4))
    assert guessing - plain == 4 * 36  # rows of a MiB


def test_a_draft_model_is_counted_once_for_the_process(meta: GgufMeta) -> None:
    draft = replace(meta, weights_bytes=300 << 20)
    spec = replace(SPEC, speculation="draft", draft_path=Path("d"))
    host_mib = estimate_draft_mib(draft, meta, spec, on_card=False)
    assert 300 < host_mib < 300 + (kv_cache_bytes(meta, SPEC) >> 20) + 64
    assert estimate_draft_mib(draft, meta, spec, on_card=True) == 0
    here = replace(spec, draft_gpu_layers=ALL_LAYERS)
    alone_mib = estimate_draft_mib(draft, meta, here, on_card=True)
    both = replace(here, gpu_layers=ALL_LAYERS)
    assert host_mib == estimate_draft_mib(draft, meta, both, on_card=True) < alone_mib


def test_a_draft_model_follows_all_the_cache_holds(meta: GgufMeta) -> None:
    small = replace(meta, values={**meta.values, "llama.context_length": 512})
    spec = replace(SPEC, speculation="draft", draft_path=Path("d"))
    more = replace(spec, places=8)
    grown = estimate_draft_mib(small, meta, more, on_card=False)
    grown -= estimate_draft_mib(small, meta, spec, on_card=False)
    assert grown >= 4 * 4096 * meta.kv_bytes_per_token() >> 20
