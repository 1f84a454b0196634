"""The header of a model file: what it tells, and that no broken one gets past."""

import contextlib
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chassis.errors import Fault, Reason
from services.llm.gguf_meta import ArrayLength, GgufMeta, read
from tests.tiny_gguf import TEMPLATE, make_tiny_gguf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def refusal(path: Path) -> str:
    with pytest.raises(Fault) as caught:
        read(path)
    assert caught.value.reason is Reason.MODEL_FAILED
    return caught.value.message


def test_it_reads_what_another_reader_reads(model: Path) -> None:
    meta, other = read(model), gguf.GGUFReader(model)
    assert meta.values["tokenizer.chat_template"] == TEMPLATE
    assert meta.values["general.architecture"] == "llama"
    assert meta.trained_context_tokens == 4096
    assert meta.tensors == len(other.tensors)
    assert meta.weights_bytes == model.stat().st_size - other.data_offset
    tokens = other.fields["tokenizer.ggml.tokens"]
    assert meta.values["tokenizer.ggml.tokens"] == ArrayLength(len(tokens.data))


def test_the_cache_is_counted_by_layers_heads_and_widths(model: Path) -> None:
    assert read(model).kv_bytes_per_token() == 2 * 2 * (16 + 16) * 2
    per_layer = {
        "general.architecture": "x",
        "x.block_count": 3,
        "x.attention.head_count": 8,
        "x.attention.head_count_kv": (8, 2, 2),
        "x.attention.key_length": 64,
        "x.attention.value_length": 32,
    }
    assert GgufMeta(per_layer, 0, 0).kv_bytes_per_token() == 2 * (64 + 32) * 12


def test_a_missing_empty_or_foreign_file_is_named(tmp_path: Path) -> None:
    assert "nowhere.gguf is not there" in refusal(tmp_path / "nowhere.gguf")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    assert "it is empty" in refusal(empty)
    empty.write_bytes(b"PK\x03\x04" + bytes(100))
    assert "not a GGUF file" in refusal(empty)
    assert "cannot be read" in refusal(tmp_path)
    empty.write_bytes(b"GGUF\x01\0\0\0" + bytes(100))
    assert "version is 1" in refusal(empty)


def test_a_model_in_several_files_is_counted_and_checked_as_one(
    model: Path, tmp_path: Path
) -> None:
    first, second = (tmp_path / f"big-0000{n}-of-00002.gguf" for n in (1, 2))
    first.write_bytes(model.read_bytes())
    assert "big-00002-of-00002.gguf is not there" in refusal(first)
    second.write_bytes(model.read_bytes())
    assert read(first).weights_bytes == 2 * read(model).weights_bytes
    second.write_bytes(model.read_bytes()[:-64])
    assert "big-00002-of-00002.gguf is broken: it is cut off" in refusal(first)


def test_a_file_cut_off_anywhere_is_refused(model: Path, tmp_path: Path) -> None:
    whole, cut = model.read_bytes(), tmp_path / "cut.gguf"
    for size in [*range(1, 2000, 7), *range(2000, len(whole), 9973), len(whole) - 64]:
        cut.write_bytes(whole[:size])
        assert "cut off" in refusal(cut) or size < 4


@settings(max_examples=200, deadline=None)
@given(st.integers(4, 12_000), st.integers(0, 255))
def test_a_flipped_byte_is_read_or_refused(model: Path, at: int, value: int) -> None:
    raw = bytearray(model.read_bytes())
    raw[at] = value
    broken = model.with_name("flipped.gguf")
    broken.write_bytes(raw)
    with contextlib.suppress(Fault):  # and nothing else
        read(broken)
