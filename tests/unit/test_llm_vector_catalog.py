"""Models of vectors as they are configured and described."""

from pathlib import Path

import gguf
import pytest
from pydantic import ValidationError

from hosting.values import Kind
from services.llm import gguf_meta
from services.llm.catalog import ModelFile
from services.llm.config import ModelConfig
from services.llm.vector_catalog import (
    VectorFile,
    estimate_resident_mib,
    source_of,
    spec_of,
    vector_spec,
)
from services.llm.vectors import DEFAULT_CONTEXT_TOKENS, VectorSpec
from tests.tiny_bert import make_tiny_bert
from tests.tiny_gguf import make_tiny_gguf


def test_each_kind_has_a_source_and_a_lane(tmp_path: Path) -> None:
    make_tiny_bert(tmp_path / "m.gguf")
    for kind, told, lane in (
        ("embedding", Kind.EMBEDDING, "embedding"),
        ("reranker", Kind.RERANKER, "embedding"),
    ):
        config = ModelConfig.model_validate({"path": "m.gguf", "kind": kind})
        described = source_of("m", config, tmp_path).describe()
        assert (described.kind, described.lane, described.problem) == (told, lane, "")
        assert described.context_tokens == 128
        assert spec_of(described.engine) == vector_spec(config, tmp_path)
        assert vector_spec(config, tmp_path).gpu_layers == 0
    assert isinstance(source_of("m", ModelConfig(path=Path("m.gguf")), tmp_path), ModelFile)
    given = ModelConfig.model_validate({"path": "m.gguf", "kind": "embedding", "lane": "chat"})
    assert given.lane == "chat"


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"kind": "embedding", "speculation": "lookup"}, "speculation is not for models of kind"),
        ({"kind": "reranker", "prefill_chunk_tokens": 4}, "prefill_chunk_tokens is not for"),
        ({"pooling": "mean"}, "pooling is not for models of kind language"),
    ],
)
def test_a_key_of_another_kind_is_refused(keys: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        ModelConfig.model_validate({"path": "m.gguf", **keys})


def test_a_file_that_is_not_there_is_no_reason_not_to_start(tmp_path: Path) -> None:
    config = ModelConfig.model_validate({"path": "m.gguf", "kind": "embedding"})
    file = VectorFile("m", config, tmp_path)
    before, absent = file.stamp(), file.describe()
    assert "is not there" in absent.problem
    assert absent.resident_mib == 1
    make_tiny_bert(tmp_path / "m.gguf")
    assert file.stamp() != before
    assert file.describe().problem == ""


def test_an_encoder_needs_no_cache_and_a_decoder_one_of_a_call(tmp_path: Path) -> None:
    encoder = make_tiny_bert(tmp_path / "e.gguf", pooling=gguf.PoolingType.CLS)
    decoder = make_tiny_gguf(tmp_path / "d.gguf", layers=64, embd=1024, heads=4, kv_heads=4, ff=8)
    meta = gguf_meta.read(decoder)
    one = VectorSpec(decoder, context_tokens=512)
    cache_mib = 512 * meta.kv_bytes_per_token() >> 20
    assert estimate_resident_mib(meta, one) - (meta.weights_bytes >> 20) > cache_mib > 100
    small = gguf_meta.read(encoder)
    assert estimate_resident_mib(small, VectorSpec(encoder)) < 140
    assert estimate_resident_mib(small, VectorSpec(encoder)) == estimate_resident_mib(
        small, VectorSpec(encoder, places=64)
    )


def test_a_long_context_is_only_given_where_it_is_asked_for() -> None:
    spec = VectorSpec(Path("m"))
    assert spec.context_of(512) == 512
    assert spec.context_of(32_768) == spec.context_of(0) == DEFAULT_CONTEXT_TOKENS
    assert VectorSpec(Path("m"), context_tokens=8192).context_of(32_768) == 8192
